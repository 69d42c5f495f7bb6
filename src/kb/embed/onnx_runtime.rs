//! Finds ONNX Runtime, the native library under every embedder except the built-in one.
//!
//! The library is loaded when a model first needs it, and only from places the user chose: `ORT_DYLIB_PATH`, the
//! program's folder, `dr`'s data folder. System folders and Python environments are not searched: loading a library
//! runs its code, and any package installed there could choose what `dr` runs. Nothing is downloaded. A process
//! loads one runtime and keeps it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use ort::LoadDynamicError;
use ort::environment::Environment;

use crate::base::mutex::locked;

/// Oldest release of ONNX Runtime that can be used, the 24 of 1.24.
const OLDEST_MINOR: u32 = ort::MINOR_VERSION;

/// ONNX Runtime could not be found or loaded.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("no ONNX Runtime found in {}", list(.searched))]
    NotFound { searched: Vec<PathBuf> },
    #[error("ONNX Runtime at `{path}` is {found}, but 1.{OLDEST_MINOR} or newer is needed")]
    TooOld { path: PathBuf, found: String },
    /// The file is not a shared library for this machine, or not ONNX Runtime.
    #[error("`{path}` cannot be loaded as ONNX Runtime")]
    Unloadable { path: PathBuf, source: LoadDynamicError },
    #[error("ONNX Runtime at `{path}` failed to start")]
    Start { path: PathBuf, source: ort::Error },
}

impl RuntimeError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NotFound { .. } | Self::TooOld { .. } => format!(
                "set ORT_DYLIB_PATH to an ONNX Runtime library, version 1.{OLDEST_MINOR} or newer; \
                 the embedder `builtin` needs none"
            ),
            Self::Unloadable { .. } | Self::Start { .. } => {
                "set ORT_DYLIB_PATH to an ONNX Runtime library built for this machine; \
                 the embedder `builtin` needs none"
                    .into()
            }
        }
    }
}

/// Finds ONNX Runtime, loads it into this process and returns its path.
///
/// `ORT_DYLIB_PATH` excludes every other place. Without it the program's folder and then `data_dir` are searched, each
/// with its `lib`. The first library that loads is kept until the process ends, and later calls return it.
///
/// # Errors
///
/// Returns an error if `ORT_DYLIB_PATH` names a library that does not load, or if no library is found. If every
/// library that was found fails to load, the error is the first failure.
pub(crate) fn find_runtime(data_dir: Option<&Path>) -> Result<PathBuf, RuntimeError> {
    static LOADED: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = LOADED.get() {
        return Ok(path.clone());
    }
    let path = first_usable(&LibraryPaths::of_this_process(data_dir), load)?;
    Ok(LOADED.get_or_init(|| path).clone())
}

/// Returns the environment that all sessions of this process share. Telemetry is off.
pub(super) fn environment(data_dir: Option<&Path>) -> Result<Environment, RuntimeError> {
    // A single one: fastembed refuses to work if another environment exists.
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
    let path = find_runtime(data_dir)?;
    let mut shared = locked(&ENVIRONMENT);
    if let Some(environment) = shared.as_ref() {
        return Ok(environment.clone());
    }
    // Windows builds send usage telemetry unless it is turned off.
    let environment =
        ort::init().with_telemetry(false).build().map_err(|source| RuntimeError::Start { path, source })?;
    *shared = Some(environment.clone());
    Ok(environment)
}

/// Loads a library into the process. A failure leaves nothing behind, so that another can be tried.
fn load(path: &Path) -> Result<(), RuntimeError> {
    match ort::init_from(path) {
        Ok(_) => {
            tracing::debug!(path = %path.display(), "loaded ONNX Runtime");
            Ok(())
        }
        Err(LoadDynamicError::BadVersion { version_str, path }) => {
            Err(RuntimeError::TooOld { path, found: version_str })
        }
        Err(source) => Err(RuntimeError::Unloadable { path: path.to_owned(), source }),
    }
}

/// Returns the first library that loads, or why none does.
fn first_usable(
    paths: &LibraryPaths,
    load: impl Fn(&Path) -> Result<(), RuntimeError>,
) -> Result<PathBuf, RuntimeError> {
    if let Some(path) = &paths.dylib_path {
        return load(path).map(|()| path.clone());
    }
    let mut first_failure = None;
    for path in paths.folders.iter().flat_map(|folder| libraries_in(folder)) {
        match load(&path) {
            Ok(()) => return Ok(path),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "not usable as ONNX Runtime");
                first_failure.get_or_insert(error);
            }
        }
    }
    Err(first_failure.unwrap_or_else(|| RuntimeError::NotFound { searched: paths.folders.clone() }))
}

/// Where the library may be.
#[derive(Debug, Default)]
struct LibraryPaths {
    /// `ORT_DYLIB_PATH`. When set, `folders` are not searched.
    dylib_path: Option<PathBuf>,
    /// Absolute paths, in order.
    folders: Vec<PathBuf>,
}

impl LibraryPaths {
    fn of_this_process(data_dir: Option<&Path>) -> Self {
        let dylib_path = env::var_os("ORT_DYLIB_PATH").filter(|value| !value.is_empty()).map(PathBuf::from);
        let program = env::current_exe().ok();
        Self { dylib_path, folders: Self::folders(program.as_deref().and_then(Path::parent), data_dir) }
    }

    fn folders(program_dir: Option<&Path>, data_dir: Option<&Path>) -> Vec<PathBuf> {
        // A relative path would make the library depend on the folder `dr` was started in.
        let own = program_dir.into_iter().chain(data_dir).filter(|folder| folder.is_absolute());
        own.flat_map(|folder| [folder.to_owned(), folder.join("lib")]).collect()
    }
}

/// Returns the ONNX Runtime libraries of a folder, newest first. An unreadable folder has none.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let libraries = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_library_name));
    let mut paths: Vec<PathBuf> = libraries.map(|entry| entry.path()).collect();
    // By the numbers in the name, so that `1.31` comes before `1.9`.
    paths.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
        std::cmp::Reverse((numbers.collect::<Vec<_>>(), name))
    });
    paths
}

/// Returns whether a file name is that of the library itself, not of one of its execution providers.
fn is_library_name(name: &str) -> bool {
    let extension = |extension| Path::new(name).extension().is_some_and(|found| found == extension);
    name == "onnxruntime.dll"
        || name == "libonnxruntime.so"
        || name.starts_with("libonnxruntime.so.")
        || (name.starts_with("libonnxruntime.") && extension("dylib"))
}

fn list(folders: &[PathBuf]) -> String {
    let folders: Vec<_> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
    folders.join(", ")
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::process::Command;

    use super::*;

    /// A file tree, and the paths searched in it.
    fn world(files: &[&str]) -> (tempfile::TempDir, LibraryPaths) {
        let files: Vec<_> = files.iter().map(|&file| (file, "")).collect();
        let folder = crate::kb::walk::tests::folder(&files);
        let folders = LibraryPaths::folders(Some(&folder.path().join("bin")), Some(&folder.path().join("data")));
        (folder, LibraryPaths { dylib_path: None, folders })
    }

    /// Returns the libraries that would be tried, in order, as paths below the world's folder.
    fn tried(files: &[&str]) -> Vec<String> {
        let (folder, paths) = world(files);
        let tried = RefCell::new(Vec::new());
        let result = first_usable(&paths, |path| {
            tried.borrow_mut().push(path.strip_prefix(folder.path()).unwrap().display().to_string().replace('\\', "/"));
            Err(RuntimeError::TooOld { path: path.to_owned(), found: "1.2.3".into() })
        });
        assert!(matches!(result, Err(RuntimeError::TooOld { .. })));
        tried.into_inner()
    }

    #[test]
    fn program_folder_is_searched_before_data_folder_and_no_other() {
        let files = [
            "bin/libonnxruntime.dylib",
            "bin/lib/libonnxruntime.so",
            "data/onnxruntime.dll",
            "data/lib/libonnxruntime.so.1.26.0",
            "data/onnxruntime/capi/libonnxruntime.so.1.27.0",
            "libonnxruntime.so",
        ];
        assert_eq!(tried(&files), files[..4]);
    }

    #[test]
    fn newest_library_of_a_folder_is_tried_first_and_providers_never() {
        let files = [
            "data/libonnxruntime.so.1.9.0",
            "data/libonnxruntime.so.1.31.1",
            "data/libonnxruntime_providers_shared.so",
            "data/onnxruntime_pybind11_state.so",
        ];
        assert_eq!(tried(&files), ["data/libonnxruntime.so.1.31.1", "data/libonnxruntime.so.1.9.0"]);
    }

    #[test]
    fn relative_folder_is_not_searched() {
        assert!(LibraryPaths::folders(Some(Path::new("bin")), Some(Path::new("./data"))).is_empty());
    }

    #[test]
    fn library_that_loads_ends_the_search() {
        let (folder, paths) = world(&["bin/libonnxruntime.so", "data/libonnxruntime.so"]);
        let found = first_usable(&paths, |path| {
            if path.starts_with(folder.path().join("data")) {
                return Ok(());
            }
            Err(RuntimeError::TooOld { path: path.to_owned(), found: "1.2.3".into() })
        });
        assert_eq!(found.unwrap(), folder.path().join("data/libonnxruntime.so"));
    }

    #[test]
    fn library_of_the_variable_is_the_only_one_tried() {
        let (_folder, mut paths) = world(&["data/libonnxruntime.so"]);
        paths.dylib_path = Some("/nowhere/libonnxruntime.so".into());
        let result = first_usable(&paths, |path| {
            assert_eq!(path, Path::new("/nowhere/libonnxruntime.so"));
            Err(RuntimeError::TooOld { path: path.to_owned(), found: "1.2.3".into() })
        });
        assert!(result.is_err());
    }

    #[test]
    fn error_names_the_folders_and_the_variable() {
        let folders = vec!["/opt/dr".into(), "/opt/dr/lib".into()];
        let error = first_usable(&LibraryPaths { dylib_path: None, folders }, |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "no ONNX Runtime found in `/opt/dr`, `/opt/dr/lib`");
        assert!(error.hint().contains("ORT_DYLIB_PATH"));
    }

    /// A process loads one library for good, so a file that fails to load is tried in a separate process.
    #[test]
    fn file_that_is_not_a_library_is_an_error_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libonnxruntime.so");
        fs::write(&path, "not a library").unwrap();
        let name = format!("{}::prints_the_error_of_find_runtime", module_path!().split_once("::").unwrap().1);
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", &name, "--ignored", "--nocapture"])
            .env("ORT_DYLIB_PATH", &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("`{}` cannot be loaded as ONNX Runtime", path.display())), "{said}");
    }

    #[test]
    #[ignore = "run by the test above in its own process"]
    fn prints_the_error_of_find_runtime() {
        eprintln!("{}", find_runtime(None).unwrap_err());
    }
}
