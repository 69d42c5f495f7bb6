//! The location of an index: a local folder, or the address of an object store.

use std::fmt;
use std::path::{Component, MAIN_SEPARATOR, Path, PathBuf, StripPrefixError};

use super::service::SCHEME;

/// Name of the folder that holds an index. The search for it starts in the current folder and goes upward.
pub(crate) const DR_FOLDER: &str = ".dr";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexLocation {
    Local {
        /// Absolute path of the folder with the tables.
        folder: PathBuf,
        /// The folder that stored collection roots are relative to: the parent of `.dr`.
        base: PathBuf,
    },
    /// An object store, `s3://`, `gs://` or `az://`, or a database of LanceDB's service, `db://`.
    Remote {
        /// The address as given.
        uri: String,
        /// This machine's folder for the index; `None` to keep nothing.
        local: Option<LocalSide>,
    },
}

/// Local files of an index on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSide {
    /// The folder, which may not exist yet.
    pub(super) folder: PathBuf,
    /// Size limit of the cached files, in bytes; 0 caches none.
    pub(super) cache_bytes: u64,
}

/// The text is not a usable location of an index.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    #[error("`{uri}` is not an address for an index")]
    Scheme { uri: String },
    #[error("this `dr` was built without support for `{scheme}://`")]
    Feature { scheme: String, feature: &'static str },
    /// The path is not UTF-8 or has control characters.
    #[error("index path `{path}` is not valid UTF-8 or has control characters")]
    NotText { path: PathBuf },
    #[error("failed to find `{path}`")]
    Path { path: PathBuf, source: std::io::Error },
}

impl LocationError {
    /// Returns a hint for the user, if there is a remedy.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Scheme { .. } => {
                Some("give a folder, or an address starting with s3://, gs://, az:// or db://".into())
            }
            Self::Feature { feature, .. } => Some(format!("build it with `cargo build --features {feature}`")),
            Self::NotText { .. } => Some("use a folder with a plain name, for example with `--index <FOLDER>`".into()),
            Self::Path { .. } => None,
        }
    }
}

impl IndexLocation {
    /// Parses a location as the user gives it: an address with a scheme, or a folder.
    ///
    /// # Errors
    ///
    /// Returns an error for an unknown scheme, or for one whose cargo feature is off.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if let Some((scheme, _)) = text.split_once("://") {
            let (enabled, feature) = match scheme {
                "s3" => (cfg!(feature = "aws"), "aws"),
                "gs" => (cfg!(feature = "gcs"), "gcs"),
                "az" | "abfss" => (cfg!(feature = "azure"), "azure"),
                "db" => (cfg!(feature = "remote"), "remote"),
                _ => return Err(LocationError::Scheme { uri: text.to_owned() }),
            };
            if !enabled {
                return Err(LocationError::Feature { scheme: scheme.to_owned(), feature });
            }
            return Ok(Self::Remote { uri: text.to_owned(), local: None });
        }
        // LanceDB treats every address that starts with `db` as its cloud, so a folder is always made absolute.
        let folder =
            std::path::absolute(text).map_err(|source| LocationError::Path { path: PathBuf::from(text), source })?;
        let base = folder.parent().map_or_else(|| folder.clone(), Path::to_path_buf);
        Ok(Self::Local { folder, base })
    }

    /// Lets an index on the network keep files in a separate folder below `stores`.
    pub(crate) fn kept_in(self, stores: &Path, cache_bytes: u64) -> Self {
        match self {
            Self::Local { .. } => self,
            Self::Remote { uri, .. } => {
                let name = &blake3::hash(uri.trim_end_matches('/').as_bytes()).to_hex()[..16];
                Self::Remote { local: Some(LocalSide { folder: stores.join(name), cache_bytes }), uri }
            }
        }
    }

    /// Returns the index of the nearest `.dr` folder at or above `start`.
    pub(crate) fn nearest(start: &Path) -> Option<Self> {
        start.ancestors().find(|folder| folder.join(DR_FOLDER).is_dir()).map(Self::in_folder)
    }

    /// Returns the location of the index of `base`: `base/.dr/index`.
    pub fn in_folder(base: &Path) -> Self {
        Self::Local { folder: base.join(DR_FOLDER).join("index"), base: base.to_path_buf() }
    }

    /// Returns the folder of a local index.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Local { folder, .. } => Some(folder),
            Self::Remote { .. } => None,
        }
    }

    /// Returns the `.dr` folder that contains the index, if any.
    pub(crate) fn dr_folder(&self) -> Option<&Path> {
        self.folder()?.parent().filter(|parent| parent.ends_with(DR_FOLDER))
    }

    /// Returns whether the tables are in LanceDB's service, which stores and maintains their files.
    pub(crate) fn is_service(&self) -> bool {
        matches!(self, Self::Remote { uri, .. } if uri.starts_with(SCHEME))
    }

    /// Returns the folder of the lock file that excludes other writers; `None` if there can be none.
    pub(super) fn lock_folder(&self) -> Option<&Path> {
        match self {
            Self::Local { folder, .. } => Some(folder),
            Self::Remote { local, .. } => local.as_ref().map(|local| local.folder.as_path()),
        }
    }

    /// Checks that the storage engine, which handles addresses as text, can open the folder.
    ///
    /// # Errors
    ///
    /// Returns [`LocationError::NotText`] for a path with bytes that are not UTF-8, or control characters.
    pub(crate) fn check(&self) -> Result<(), LocationError> {
        let is_text = |folder: &Path| folder.to_str().is_some_and(|text| !text.contains(char::is_control));
        match self {
            Self::Local { folder, .. } if !is_text(folder) => Err(LocationError::NotText { path: folder.clone() }),
            _ => Ok(()),
        }
    }

    /// Returns whether a stored root is inside the folder that the index belongs to, judged only by its text.
    pub(crate) fn owns(&self, stored: &str) -> bool {
        // `..` and an absolute path lead out.
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        matches!(self, Self::Local { .. }) && Path::new(stored).components().all(plain)
    }

    /// Returns the stored form of a collection's root: relative to the base if it is inside, so that a project can be
    /// moved as a whole.
    pub(crate) fn store_root(&self, root: &Path) -> String {
        match self {
            Self::Local { base, .. } => match path_inside(base, root) {
                Ok(inside) if inside.as_os_str().is_empty() => ".".to_owned(),
                Ok(inside) => inside.to_string_lossy().replace(MAIN_SEPARATOR, "/"),
                Err(_) => root.to_string_lossy().into_owned(),
            },
            Self::Remote { .. } => root.to_string_lossy().into_owned(),
        }
    }

    /// Returns where a stored root leads if a symbolic link takes it out of the folder that the index belongs to.
    pub(crate) fn leads_out(&self, stored: &str) -> Option<PathBuf> {
        self.base().and_then(|base| leads_out_of(base, &self.open_root(stored)))
    }

    /// Returns the folder that a local index belongs to.
    pub(crate) fn base(&self) -> Option<&Path> {
        match self {
            Self::Local { base, .. } => Some(base),
            Self::Remote { .. } => None,
        }
    }

    /// Returns the folder that a stored root refers to.
    pub(crate) fn open_root(&self, stored: &str) -> PathBuf {
        match self {
            Self::Local { base, .. } if stored == "." => base.clone(),
            // An absolute path replaces the base.
            Self::Local { base, .. } => base.join(stored),
            Self::Remote { .. } => PathBuf::from(stored),
        }
    }
}

/// Returns the path from `base` to `root`, whose links are resolved; those of `base` may not be.
fn path_inside<'a>(base: &Path, root: &'a Path) -> Result<&'a Path, StripPrefixError> {
    root.strip_prefix(base)
        .or_else(|error| dunce::canonicalize(base).map_or(Err(error), |base| root.strip_prefix(base)))
}

/// Returns where `path` leads if a symbolic link inside `project` takes it out of there.
///
/// Such a link may have come with the project, so it must not decide which files are read. A path that is spelled as
/// outside was chosen by the user, and links on it are followed.
pub(crate) fn leads_out_of(project: &Path, path: &Path) -> Option<PathBuf> {
    let project = project.canonicalize().ok()?;
    let real = path.canonicalize().ok().filter(|real| !real.starts_with(&project))?;
    let mut at = PathBuf::new();
    for part in std::path::absolute(path).ok()?.components() {
        let was_inside = at.starts_with(&project);
        at.push(part);
        // By itself, a Windows drive is the current folder on it, and a server is no folder.
        if matches!(part, Component::Prefix(_)) {
            continue;
        }
        at = at.canonicalize().ok()?;
        // `..` in the path was chosen by the user; anything else that leads out is a link.
        if was_inside && part != Component::ParentDir && !at.starts_with(&project) {
            return Some(real);
        }
    }
    None
}

/// Displays the address LanceDB connects to.
impl fmt::Display for IndexLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { folder, .. } => f.write_str(&folder.to_string_lossy()),
            Self::Remote { uri, .. } => f.write_str(uri),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_whose_name_starts_with_db_is_not_taken_for_the_cloud() {
        let location = IndexLocation::parse("dbs/kb").unwrap();
        assert!(Path::new(&location.to_string()).is_absolute(), "{location}");
    }

    #[test]
    fn unknown_scheme_is_refused() {
        let error = IndexLocation::parse("ftp://host/kb").unwrap_err();
        assert_eq!(error.to_string(), "`ftp://host/kb` is not an address for an index");
    }

    #[test]
    fn root_that_leads_out_of_the_project_is_not_its_own() {
        let location = IndexLocation::in_folder(Path::new("/home/a/project"));
        assert!(location.owns("docs/kb") && location.owns("."));
        for stored in ["/etc", "..", "docs/../../x"] {
            assert!(!location.owns(stored), "{stored}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn link_inside_a_project_does_not_lead_out_of_it_and_any_other_path_does() {
        use std::os::unix::fs::symlink;

        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().canonicalize().unwrap().join(path);
        for path in ["project/kb/deep", "outside/notes"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        symlink(at("outside"), at("project/out")).unwrap();
        symlink("out/notes", at("project/chain")).unwrap();
        symlink("kb", at("project/inner")).unwrap();
        symlink(at("project"), at("outside/back")).unwrap();
        symlink(at("project"), at("other")).unwrap();
        let leads_out = |path: &str| leads_out_of(&at("project"), &at(path));
        for path in ["project/out/notes", "project/chain", "project/kb/../out/notes", "other/chain"] {
            assert_eq!(leads_out(path), Some(at("outside/notes")), "{path}");
        }
        for path in ["project/kb", "project/inner", "outside/notes", "project/../outside/notes", "project/out/back/kb"]
        {
            assert_eq!(leads_out(path), None, "{path}");
        }
        assert_eq!(leads_out("project/missing"), None);
    }

    #[test]
    fn root_inside_the_project_moves_with_it() {
        let before = IndexLocation::in_folder(Path::new("/home/a/project"));
        let after = IndexLocation::in_folder(Path::new("/home/b/project"));
        let stored = before.store_root(Path::new("/home/a/project/docs/kb"));
        assert_eq!(after.open_root(&stored), Path::new("/home/b/project/docs/kb"));
        assert_eq!(before.open_root(&before.store_root(Path::new("/home/a/project"))), Path::new("/home/a/project"));
        assert_eq!(before.open_root(&before.store_root(Path::new("/srv/wiki"))), Path::new("/srv/wiki"));
    }
}
