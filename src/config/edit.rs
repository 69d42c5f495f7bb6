//! Changes one setting in a file, and nothing else in it: comments and order stay.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

use figment::value::Value;
use toml_edit::{DocumentMut, Item, Table};

use super::layers::MAX_FILE_BYTES;
use super::{ConfigError, Flags, PROJECT_FILE, SETTINGS, Settings};
use crate::base::file::{read_text, replace_text};
use crate::base::folder::create_private;

/// The result of writing a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) file: PathBuf,
    /// Whether the file is the user's own, which applies to all folders.
    pub(crate) is_users: bool,
    /// The file or variable whose value takes precedence, if any.
    pub(crate) overridden: Option<String>,
}

/// A setting could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The settings would be invalid, or already are.
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("failed to change `{path}`")]
    File { path: PathBuf, source: std::io::Error },
    /// The file is not TOML, or has something other than a table where one is needed.
    #[error("`{path}` has no place for `{name}`")]
    NoPlace { path: PathBuf, name: &'static str },
}

impl Settings {
    /// Writes a setting to the file of the project, or to the user's own file if a project may not set it. The
    /// settings in effect in this process do not change.
    pub(crate) fn write(&mut self, project: &Path, name: &'static str, value: &str) -> Result<Written, EditError> {
        let is_trusted = self.paths.trust().is_trusted(project);
        let is_open = |setting: &&super::setting::Setting| {
            setting.name == name && setting.is_open_to_projects(&Value::from(value), is_trusted)
        };
        let is_users = SETTINGS.iter().find(is_open).is_none();
        let file = if is_users {
            // The user may keep it elsewhere, behind a link. A link in a project may have come with it, and is not
            // followed.
            self.paths.user_file.canonicalize().unwrap_or_else(|_| self.paths.user_file.clone())
        } else {
            project.join(PROJECT_FILE)
        };
        set_in(&file, name, value)?;
        // Resolved without flags: the check is whether the file takes effect in later commands.
        let now = Self::resolve(self.paths.clone(), project, &Flags::default())?;
        self.explained.clone_from(&now.explained);
        let in_force = now.explained.into_iter().find(|(key, ..)| key == name).map(|(_, _, origin)| origin);
        // An origin is the path under which a file was found, not the target of a link.
        let here = if is_users { &self.paths.user_file } else { &file };
        let overridden = in_force.filter(|origin| *origin != here.display().to_string());
        Ok(Written { file, is_users, overridden })
    }
}

fn set_in(path: &Path, name: &'static str, value: &str) -> Result<(), EditError> {
    let failed = |source| EditError::File { path: path.to_owned(), source };
    let no_place = || EditError::NoPlace { path: path.to_owned(), name };
    let exists = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_file() => true,
        Ok(_) => return Err(failed(Error::other("not a regular file"))),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    let text = if exists { read_text(path, MAX_FILE_BYTES).map_err(failed)? } else { String::new() };
    let mut document: DocumentMut = text.parse().map_err(|_| no_place())?;
    let mut table = document.as_table_mut() as &mut dyn toml_edit::TableLike;
    let (tables, key) = name.rsplit_once('.').map_or(("", name), |(tables, key)| (tables, key));
    for part in tables.split('.').filter(|part| !part.is_empty()) {
        let inner = table.entry(part).or_insert(Item::Table(Table::new()));
        table = inner.as_table_like_mut().ok_or_else(no_place)?;
    }
    match table.get_mut(key) {
        // A comment after the value is kept.
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = value.into();
            *old.decor_mut() = decor;
        }
        Some(_) => return Err(no_place()),
        None => {
            table.insert(key, toml_edit::value(value));
        }
    }
    let text = document.to_string();
    if exists {
        return replace_text(path, &text).map_err(failed);
    }
    let folder = create_private(path.parent().unwrap_or(path));
    // Fails if a file or a link has appeared there since the check.
    folder.and_then(|()| File::create_new(path)?.write_all(text.as_bytes())).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, name: &'static str, value: &str) -> Result<String, EditError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config.toml");
        if !text.is_empty() {
            std::fs::create_dir(folder.path().join("new")).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        set_in(&path, name, value)?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn rest_of_the_file_stays_as_it_is() {
        assert_eq!(changed("", "embedder", "builtin").unwrap(), "embedder = \"builtin\"\n");
        assert_eq!(changed("", "rerank.model", "x").unwrap(), "[rerank]\nmodel = \"x\"\n");
        let text = "# mine\nlimit = 5 # few\nembedder = \"old\" # best\n\n[web]\nfetch = false\n";
        assert_eq!(changed(text, "embedder", "new").unwrap(), text.replace("old", "new"));
        let with_table = "[rerank] # here\ncandidates = 5\n";
        assert_eq!(changed(with_table, "rerank.model", "x").unwrap(), format!("{with_table}model = \"x\"\n"));
        let before_tables = changed("[web]\nfetch = false\n", "embedder", "new").unwrap();
        assert!(before_tables.starts_with("embedder = \"new\"\n"), "{before_tables}");
    }

    #[cfg(unix)]
    #[test]
    fn link_in_a_project_is_neither_followed_nor_replaced() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (path, target) = (folder.path().join(PROJECT_FILE), outside.path().join("a.toml"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(matches!(set_in(&path, "limit", "5"), Err(EditError::File { .. })));
        assert!(!target.exists(), "a file outside was created");
        std::fs::write(&target, "limit = 7\n").unwrap();
        assert!(matches!(set_in(&path, "limit", "5"), Err(EditError::File { .. })));
        assert_eq!(std::fs::read_to_string(target).unwrap(), "limit = 7\n");
        assert!(path.is_symlink());
    }

    #[test]
    fn file_that_cannot_be_understood_is_left_alone() {
        for text in ["not toml", "rerank = 5\n", "[rerank.model]\nx = 1\n"] {
            assert!(matches!(changed(text, "rerank.model", "x"), Err(EditError::NoPlace { .. })), "{text}");
        }
    }
}
