//! Finding ONNX Runtime, the native library under every embedder but the built-in one.
//!
//! It is not linked but loaded when it is needed, from where the user, a package manager or a Python environment has
//! put it. Nothing is downloaded. A process loads one runtime and keeps it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::LoadDynamicError;
use ort::environment::Environment;

/// Oldest release of ONNX Runtime that can be used, the 24 of 1.24.
const OLDEST_MINOR: u32 = ort::MINOR_VERSION;

/// No usable ONNX Runtime was found.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No such library in any of the usual places.
    #[error("no ONNX Runtime found ({} folders searched)", .searched.len())]
    NotFound {
        /// Folders that were looked in, in order.
        searched: Vec<PathBuf>,
    },

    /// The library is older than [`OLDEST_MINOR`].
    #[error("ONNX Runtime at `{path}` is {found}, but 1.{OLDEST_MINOR} or newer is needed")]
    TooOld {
        /// The library.
        path: PathBuf,
        /// The version it reports.
        found: String,
    },

    /// The file is not an ONNX Runtime library for this platform.
    #[error("`{path}` cannot be loaded as ONNX Runtime")]
    Unloadable {
        /// The library.
        path: PathBuf,
        /// The error from the loader.
        #[source]
        source: LoadDynamicError,
    },

    /// The library was loaded but could not be initialised.
    #[error("ONNX Runtime at `{path}` failed to start")]
    Start {
        /// The library.
        path: PathBuf,
        /// The error from the library.
        #[source]
        source: ort::Error,
    },
}

impl RuntimeError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            Self::NotFound { .. } | Self::TooOld { .. } => format!(
                "`pip install 'onnxruntime>=1.{OLDEST_MINOR}'`, or set ORT_DYLIB_PATH to the library; \
                 the embedder `builtin` needs neither"
            ),
            Self::Unloadable { .. } | Self::Start { .. } => {
                "set ORT_DYLIB_PATH to an ONNX Runtime library built for this machine; \
                 the embedder `builtin` needs none"
                    .into()
            }
        }
    }
}

/// Finds an ONNX Runtime, loads it into this process and returns where it is.
///
/// Looks in `ORT_DYLIB_PATH`, beside this program, in `data_dir`, in the system's library folders and in Python
/// environments, in this order. The first that loads is kept until the process ends, and every later call returns it.
///
/// # Errors
///
/// Returns an error if `ORT_DYLIB_PATH` names something that cannot be used, or if nothing is found. If something is
/// found that does not load, the error is about the first such library.
pub fn find_runtime(data_dir: Option<&Path>) -> Result<PathBuf, RuntimeError> {
    static LOADED: OnceLock<PathBuf> = OnceLock::new();
    if let Some(path) = LOADED.get() {
        return Ok(path.clone());
    }
    let path = first_usable(&Surroundings::of_this_process(data_dir), load)?;
    Ok(LOADED.get_or_init(|| path).clone())
}

/// Returns the one environment that all sessions of this process share, with telemetry off.
pub(super) fn environment(data_dir: Option<&Path>) -> Result<Environment, RuntimeError> {
    static ENVIRONMENT: Mutex<Option<Environment>> = Mutex::new(None);
    let path = find_runtime(data_dir)?;
    let mut shared = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = shared.as_ref() {
        return Ok(environment.clone());
    }
    let environment =
        ort::init().with_telemetry(false).build().map_err(|source| RuntimeError::Start { path, source })?;
    *shared = Some(environment.clone());
    Ok(environment)
}

/// Loads a library into the process. A failure has no lasting effect, so the next candidate can be tried.
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

/// Returns the first library that loads, or the error of the first that does not.
fn first_usable(
    surroundings: &Surroundings,
    load: impl Fn(&Path) -> Result<(), RuntimeError>,
) -> Result<PathBuf, RuntimeError> {
    if let Some(path) = &surroundings.dylib_path {
        return load(path).map(|()| path.clone());
    }
    let searched = surroundings.folders();
    let mut first_failure = None;
    for path in searched.iter().flat_map(|folder| libraries_in(folder)) {
        match load(&path) {
            Ok(()) => return Ok(path),
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "not usable as ONNX Runtime");
                first_failure.get_or_insert(error);
            }
        }
    }
    Err(first_failure.unwrap_or(RuntimeError::NotFound { searched }))
}

/// Where this process runs, as far as it says where libraries may be.
#[derive(Debug, Default)]
struct Surroundings {
    /// `ORT_DYLIB_PATH`: the user's word, beside which nothing else counts.
    dylib_path: Option<PathBuf>,
    program_dir: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    /// `LD_LIBRARY_PATH` and its like.
    library_path: Vec<PathBuf>,
    /// `/`, except in tests.
    root: PathBuf,
    /// `VIRTUAL_ENV` and `CONDA_PREFIX`.
    python_prefixes: Vec<PathBuf>,
    home: Option<PathBuf>,
}

impl Surroundings {
    fn of_this_process(data_dir: Option<&Path>) -> Self {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let library_paths = ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"];
        Self {
            dylib_path: path("ORT_DYLIB_PATH"),
            program_dir: env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned)),
            data_dir: data_dir.map(Path::to_owned),
            library_path: library_paths
                .iter()
                .filter_map(env::var_os)
                .flat_map(|paths| env::split_paths(&paths).collect::<Vec<_>>())
                .collect(),
            root: PathBuf::from("/"),
            python_prefixes: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(path).collect(),
            home: env::home_dir(),
        }
    }

    /// Returns the folders to look in, in order, each once; all exist.
    fn folders(&self) -> Vec<PathBuf> {
        let own = self.program_dir.iter().chain(&self.data_dir);
        let own = own.flat_map(|folder| [folder.clone(), folder.join("lib")]);
        let mut folders: Vec<PathBuf> = own.chain(self.library_path.iter().cloned()).collect();
        folders.extend(self.system_folders());
        folders.extend(self.python_prefixes.iter().map(|prefix| prefix.join("lib")));
        let packages = self.site_packages();
        folders.extend(packages.into_iter().map(|packages| packages.join("onnxruntime").join("capi")));

        // A relative path would make what is loaded depend on the folder `dr` happens to be in.
        folders.retain(|folder| folder.is_absolute() && folder.is_dir());
        let mut seen = std::collections::HashSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        folders
    }

    fn system_folders(&self) -> Vec<PathBuf> {
        const COMMON: [&str; 9] = [
            "usr/local/lib",
            "usr/local/lib64",
            "usr/lib",
            "usr/lib64",
            "lib",
            "lib64",
            "opt/onnxruntime/lib",
            "opt/homebrew/lib",
            "home/linuxbrew/.linuxbrew/lib",
        ];
        let mut folders = self.loader_folders();
        folders.extend(COMMON.iter().map(|folder| self.root.join(folder)));
        // Debian keeps libraries in a folder for each architecture.
        folders.extend(children(&self.root.join("usr/lib"), |name| name.contains("-linux-")));
        folders
    }

    /// Returns the folders that the system's loader is configured to search.
    fn loader_folders(&self) -> Vec<PathBuf> {
        let files = children(&self.root.join("etc/ld.so.conf.d"), |name| {
            Path::new(name).extension().is_some_and(|extension| extension == "conf")
        });
        let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        let folders = text.lines().map(str::trim).filter(|line| line.starts_with('/'));
        folders.map(|folder| self.root.join(folder.trim_start_matches('/'))).collect()
    }

    /// Returns the folders where Python keeps packages, without asking a Python.
    fn site_packages(&self) -> Vec<PathBuf> {
        let mut prefixes = self.python_prefixes.clone();
        if let Some(home) = &self.home {
            prefixes.push(home.join(".local"));
            prefixes.extend(newest_first(children(&home.join(".pyenv/versions"), |_| true)));
            prefixes.extend(["miniconda3", "anaconda3", "miniforge3"].map(|name| home.join(name)));
            prefixes.extend(newest_first(children(&home.join("Library/Python"), |_| true)));
            prefixes.extend(newest_first(children(&home.join("AppData/Roaming/Python"), |_| true)));
            prefixes.extend(newest_first(children(&home.join("AppData/Local/Programs/Python"), |_| true)));
        }
        let frameworks = self.root.join("Library/Frameworks/Python.framework/Versions");
        prefixes.extend(newest_first(children(&frameworks, |name| name.starts_with('3'))));
        prefixes.extend(["usr/local", "opt/homebrew", "usr"].map(|prefix| self.root.join(prefix)));
        prefixes.iter().flat_map(|prefix| site_packages_of(prefix)).collect()
    }
}

/// Returns the folders where the Pythons of a prefix keep packages.
fn site_packages_of(prefix: &Path) -> Vec<PathBuf> {
    let libs = [prefix.join("lib"), prefix.join("lib64")];
    let pythons = libs.iter().flat_map(|lib| newest_first(children(lib, |name| name.starts_with("python3"))));
    let unix = pythons.flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]);
    // Windows, and a user's packages on macOS.
    let others = ["Lib/site-packages", "site-packages", "lib/python/site-packages"].map(|path| prefix.join(path));
    unix.chain(others).collect()
}

/// Returns the ONNX Runtime libraries of a folder, the newest first.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    newest_first(children(folder, is_library_name))
}

/// Returns whether a file name is that of the library itself rather than of one of its execution providers.
fn is_library_name(name: &str) -> bool {
    let extension = |extension| Path::new(name).extension().is_some_and(|found| found == extension);
    name == "onnxruntime.dll"
        || name == "libonnxruntime.so"
        || name.starts_with("libonnxruntime.so.")
        || (name.starts_with("libonnxruntime.") && extension("dylib"))
}

/// Returns the entries of a folder whose names are wanted; empty if it cannot be read.
fn children(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| entry.file_name().to_str().is_some_and(&wanted));
    wanted.map(|entry| entry.path()).collect()
}

/// Sorts paths by the numbers in their names, newest first, so that `3.13` comes before `3.9`.
fn newest_first(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort_by_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let numbers = name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<u64>().ok());
        std::cmp::Reverse((numbers.collect::<Vec<_>>(), name))
    });
    paths
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::process::Command;

    use super::*;

    /// A file tree, and the surroundings of a process in it.
    fn world(files: &[&str]) -> (tempfile::TempDir, Surroundings) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let at = |path: &str| folder.path().join(path);
        let surroundings = Surroundings {
            program_dir: Some(at("bin")),
            data_dir: Some(at("data")),
            root: folder.path().to_owned(),
            python_prefixes: vec![at("venv")],
            home: Some(at("home/me")),
            ..Surroundings::default()
        };
        (folder, surroundings)
    }

    /// What would be tried, in order, as paths below the world's folder.
    fn tried(files: &[&str]) -> Vec<String> {
        let (folder, surroundings) = world(files);
        let tried = RefCell::new(Vec::new());
        let result = first_usable(&surroundings, |path| {
            tried.borrow_mut().push(path.strip_prefix(folder.path()).unwrap().display().to_string());
            Err(RuntimeError::TooOld { path: path.to_owned(), found: "1.2.3".into() })
        });
        assert!(matches!(result, Err(RuntimeError::TooOld { .. })));
        tried.into_inner()
    }

    #[test]
    fn places_are_searched_from_ours_to_pythons() {
        let files = [
            "usr/lib/python3/dist-packages/onnxruntime/capi/libonnxruntime.so.1.24.0",
            "home/me/.pyenv/versions/3.9.1/lib/python3.9/site-packages/onnxruntime/capi/libonnxruntime.so.1.25.0",
            "home/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages/onnxruntime/capi/libonnxruntime.so.1.25.0",
            "home/me/.local/lib/python3.11/site-packages/onnxruntime/capi/libonnxruntime.so.1.26.0",
            "venv/lib/python3.12/site-packages/onnxruntime/capi/libonnxruntime.1.27.0.dylib",
            "usr/lib/x86_64-linux-gnu/libonnxruntime.so",
            "usr/local/lib/libonnxruntime.so.1.28.0",
            "data/onnxruntime.dll",
            "bin/libonnxruntime.dylib",
        ];
        let last_to_first: Vec<&str> = files.iter().rev().copied().collect();
        assert_eq!(tried(&files), last_to_first);
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
    fn loader_configuration_is_followed() {
        let (folder, surroundings) = world(&["etc/ld.so.conf.d/my.conf", "srv/libs/libonnxruntime.so"]);
        fs::write(folder.path().join("etc/ld.so.conf.d/my.conf"), "# mine\n/srv/libs\n").unwrap();
        let found = first_usable(&surroundings, |_| Ok(())).unwrap();
        assert_eq!(found, folder.path().join("srv/libs/libonnxruntime.so"));
    }

    #[test]
    fn a_library_the_user_names_is_the_only_one_tried() {
        let (_folder, mut surroundings) = world(&["data/libonnxruntime.so"]);
        surroundings.dylib_path = Some("/nowhere/libonnxruntime.so".into());
        let result = first_usable(&surroundings, |path| {
            assert_eq!(path, Path::new("/nowhere/libonnxruntime.so"));
            Err(RuntimeError::TooOld { path: path.to_owned(), found: "1.2.3".into() })
        });
        assert!(result.is_err());
    }

    #[test]
    fn nothing_found_says_how_to_get_it() {
        let (_folder, surroundings) = world(&["data/readme.txt"]);
        let error = first_usable(&surroundings, |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "no ONNX Runtime found (1 folders searched)");
        assert!(error.hint().contains("pip install"));
    }

    /// Loading is once for a process, so what does not load is tried in a process of its own.
    #[test]
    fn a_file_that_is_no_library_is_an_error_and_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libonnxruntime.so");
        fs::write(&path, "not a library").unwrap();
        let name = format!("{}::prints_what_find_runtime_says", module_path!().split_once("::").unwrap().1);
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
    fn prints_what_find_runtime_says() {
        eprintln!("{}", find_runtime(None).unwrap_err());
    }
}
