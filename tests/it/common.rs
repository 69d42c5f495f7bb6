//! A temporary environment for one test, and snapshots of `dr` invocations in it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use dr::kb::index::{ChunkRow, DocumentRow, Index, IndexLocation, IndexStats};
use serde_json::Value;
use tempfile::TempDir;

/// Compares the exit code, stdout and stderr of a `dr` invocation with a snapshot, after replacing what varies between
/// runs.
macro_rules! dr_snapshot {
    ($run:expr $(, $name:expr)?) => {{
        let run = $run;
        let filters = run.filters();
        let filters = filters.iter().map(|(pattern, shown)| (pattern.as_str(), *shown));
        insta::with_settings!({ filters => filters.collect::<Vec<_>>(), omit_expression => true }, {
            insta::assert_snapshot!($($name,)? run.to_string());
        });
    }};
}

/// Folder of settings and data on Windows, in the home folder.
const ROAMING: &str = "AppData/Roaming";

/// A home folder and a project folder as working directory, isolated from the machine's environment, settings and
/// indexes.
pub struct World {
    root: PathBuf,
    variables: BTreeMap<&'static str, String>,
    _folder: TempDir,
}

/// A finished `dr` invocation.
pub struct Run {
    pub exit: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    root: PathBuf,
}

impl World {
    /// Returns a world with an empty project.
    pub fn empty() -> Self {
        let folder = tempfile::Builder::new().prefix("dr-world-").tempdir().unwrap();
        let root = dunce::canonicalize(folder.path()).unwrap();
        for name in ["home", "project", "tmp"] {
            std::fs::create_dir(root.join(name)).unwrap();
        }
        Self { root, variables: BTreeMap::new(), _folder: folder }
    }

    /// Returns a world with a copy of `fixtures/kb-small` as `kb`.
    pub fn with_kb() -> Self {
        Self::with_copy_of(&fixtures().join("kb-small"))
    }

    /// Returns a world with a copy of a folder as `kb`.
    pub fn with_copy_of(folder: &Path) -> Self {
        let world = Self::empty();
        copy(folder, &world.path("kb"));
        world
    }

    /// Returns a world whose `kb` is indexed with vectors.
    pub fn indexed() -> Self {
        let world = Self::with_kb();
        world.dr(["index", "kb", "--quiet"]).succeeded();
        world
    }

    /// Returns a world whose `kb` is indexed as text only, which is faster.
    pub fn indexed_text() -> Self {
        let world = Self::with_kb();
        world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
        world
    }

    /// Returns a world with notes in `kb`, which are indexed as text only.
    pub fn of_notes(notes: &[(&str, &str)]) -> Self {
        let world = Self::empty();
        for (path, text) in notes {
            world.write_on_day(1, &format!("kb/{path}"), text);
        }
        world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
        world
    }

    /// Returns a world with a copy of the project of another one.
    pub fn like(other: &Self) -> Self {
        let world = Self::empty();
        copy(&other.path(""), &world.path(""));
        world.dr(["trust", "--yes", "--quiet"]).succeeded();
        world
    }

    /// Sets an environment variable for every later invocation.
    pub fn with_variable(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.insert(name, value.into());
        self
    }

    /// Returns an absolute path in the project.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join("project").join(native(path))
    }

    /// Returns an absolute path in the home folder.
    pub fn home(&self, path: &str) -> PathBuf {
        self.root.join("home").join(native(path))
    }

    /// Writes a project file with a modification time that differs for each `day`. All are old enough for `dr` to trust
    /// them.
    pub fn write_on_day(&self, day: u32, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        set_time(&path, day);
    }

    /// Writes a project file, with a later modification time than the copied files.
    pub fn write(&self, path: &str, text: &str) {
        self.write_on_day(2, path, text);
    }

    /// Reads a project file.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    /// Returns a command for `dr` in this world, with a cleared environment.
    pub fn command<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dr"));
        command.args(args).current_dir(self.root.join("project")).stdin(Stdio::null()).env_clear();
        command.env("HOME", self.root.join("home")).env("TMPDIR", self.root.join("tmp")).env("NO_COLOR", "1");
        if cfg!(windows) {
            command.env("USERPROFILE", self.root.join("home")).env("APPDATA", self.home(ROAMING));
            command.env("LOCALAPPDATA", self.home("AppData/Local")).env("TMP", self.root.join("tmp"));
            // Without it there are no sockets.
            command.envs(std::env::var_os("SystemRoot").map(|folder| ("SystemRoot", folder)));
        }
        command.envs(&self.variables);
        command
    }

    /// Starts `dr`, whose output is kept.
    pub fn spawn<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub fn dr<I: IntoIterator<Item: AsRef<OsStr>>>(&self, args: I) -> Run {
        self.run_of(self.command(args).output().unwrap())
    }

    /// Runs `dr` on a terminal on which `typed` is typed. Its stdout has everything the terminal shows.
    #[cfg(target_os = "linux")]
    pub fn dr_on_a_terminal(&self, args: &str, typed: &str) -> Run {
        use std::io::Write;

        let command = format!("{} {args}", env!("CARGO_BIN_EXE_dr"));
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh");
        let own = self.command([""; 0]);
        script.current_dir(own.get_current_dir().unwrap());
        script.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = script.spawn().unwrap();
        running.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
        self.run_of(running.wait_with_output().unwrap())
    }

    /// Wraps the output of an invocation.
    pub fn run_of(&self, output: Output) -> Run {
        Run {
            exit: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            root: self.root.clone(),
        }
    }

    /// Returns the runs as `dr runs` lists them, newest first.
    pub fn runs(&self) -> Vec<Value> {
        self.dr(["runs", "--json"]).succeeded().json()["runs"].as_array().unwrap().clone()
    }

    /// Returns the ids of the runs, newest first.
    pub fn run_ids(&self) -> Vec<String> {
        self.runs().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the lines that `dr export` prints of a run, or of the newest one.
    pub fn export(&self, run: Option<&str>) -> Vec<Value> {
        let lines = self.dr(["export"].into_iter().chain(run)).succeeded().stdout;
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the path of the user's settings.
    pub fn settings_file(&self) -> PathBuf {
        self.home(if cfg!(windows) { ROAMING } else { ".config" }).join("dr/config.toml")
    }

    /// Writes the user's settings.
    pub fn set(&self, settings: &str) {
        std::fs::create_dir_all(self.home(".config/dr")).unwrap();
        std::fs::write(self.settings_file(), settings).unwrap();
    }

    /// Adds lines to the user's settings.
    pub fn set_more(&self, settings: &str) {
        self.set(&(std::fs::read_to_string(self.settings_file()).unwrap() + settings));
    }

    /// Runs SQL on the journal, as another program would.
    pub fn alter(&self, sql: &str) {
        rusqlite::Connection::open(self.path(".dr/state.db")).unwrap().execute_batch(sql).unwrap();
    }

    /// Returns the path of the project's index.
    pub fn location(&self) -> IndexLocation {
        IndexLocation::in_folder(&self.path(""))
    }

    /// Returns all rows of the project's index.
    pub fn contents(&self) -> Contents {
        block_on(Contents::read(&self.location()))
    }
}

/// The contents of an index that do not depend on the order in which it was built.
#[derive(Debug, PartialEq)]
pub struct Contents {
    pub documents: Vec<DocumentRow>,
    pub chunks: Vec<ChunkRow>,
    pub collections: BTreeMap<String, String>,
    pub vectors: usize,
    pub vectors_missing: usize,
    pub unindexed_text_rows: usize,
}

impl Contents {
    pub async fn read(location: &IndexLocation) -> Self {
        let index = Index::open(location).await.unwrap();
        let mut documents = index.documents(None).await.unwrap();
        documents.sort_by(|a, b| a.id.cmp(&b.id));
        let mut chunks = Vec::new();
        for document in &documents {
            chunks.extend(index.document_chunks(&document.id).await.unwrap());
        }
        let IndexStats { vectors, vectors_missing, unindexed_text_rows, chunks: rows, .. } =
            index.stats().await.unwrap();
        assert_eq!(rows, chunks.len(), "every chunk belongs to a document");
        let ids: HashSet<_> = chunks.iter().map(|chunk| &chunk.id).collect();
        assert_eq!(ids.len(), chunks.len(), "no chunk is there twice");
        let collections = index.manifest().collections.clone();
        Self { documents, chunks, collections, vectors, vectors_missing, unindexed_text_rows }
    }
}

impl Run {
    /// Asserts exit code 0.
    pub fn succeeded(self) -> Self {
        assert_eq!(self.exit, Some(0), "{self}");
        self
    }

    /// Parses stdout as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Returns the replacements for snapshots, in order of application.
    pub fn filters(&self) -> Vec<(String, &'static str)> {
        let root = regex::escape(&slashed(&self.root.to_string_lossy()));
        let mut filters = vec![(root, "[WORLD]")];
        if cfg!(windows) {
            // The texts of Windows, then of Wine.
            let missing =
                r"(The system cannot find the (file|path) specified|(File|Path) not found)\. \(os error [23]\)";
            filters.push((missing.into(), "No such file or directory (os error 2)"));
            filters.push(("AppData/Roaming/dr".into(), ".config/dr"));
            filters.push((r"\bdr\.exe\b".into(), "dr"));
        }
        filters.extend([
            // On a machine under load a run takes minutes.
            (r"\b(\d+ min \d+|\d+\.\d|\d\d) s\b".into(), "[SECONDS]"),
            (r#""(elapsed_ms|seconds|latency_p\d+_ms)": [0-9.e-]+"#.into(), r#""$1": "[TIME]""#),
            (r"(latency p\d+) +[0-9.]+ ms".into(), "$1 [TIME]"),
            (r"process \d+ since \S+Z".into(), "process [PID] since [TIME]"),
            // Floating-point results differ in the last digits between processors.
            (r#""(score|confidence|lexical_score|vector_similarity)": [0-9.e-]+"#.into(), r#""$1": "[SCORE]""#),
            (r"(score|lexical #\d+|vector #\d+) [0-9]+\.[0-9]{3}".into(), "$1 [SCORE]"),
            (r"Confidence [0-9.]+[0-9]".into(), "Confidence [SCORE]"),
            // The units that the skim is shown are ranked by such scores.
            (r"\b\d+,\d{3} tokens, cost ".into(), "[TOKENS] tokens, cost "),
            (r"cost \$0\.\d{4}\b".into(), "cost $$[COST]"),
            (r"/\.tmp\w{6}".into(), "/[TEMPORARY]"),
            (r"\b[0-9a-f]{32}\b".into(), "[FINGERPRINT]"),
            ("`dr show [0-9a-f]{16}`".into(), "`dr show [RUN]`"),
            (r"index takes \d+ [kM]B, \d+ [kMG]B free".into(), "index takes [SIZE], [SIZE] free"),
            (r"index         version \d+".into(), "index         version [VERSION]"),
            (r"\bdr \d+\.\d+\.\d+".into(), "dr [VERSION]"),
            // Depends on the machine.
            (r"(?m)^\w+ +onnx runtime .*\n( +→.*\n)?".into(), "[ONNX RUNTIME]\n"),
        ]);
        filters
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit {
            Some(exit) => writeln!(f, "exit: {exit}")?,
            None => writeln!(f, "exit: by a signal")?,
        }
        let root = self.root.to_string_lossy();
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|text| with_slashes(text, &root));
        write!(f, "--- stdout ---\n{stdout}--- stderr ---\n{stderr}")
    }
}

/// Returns a path with the separator of this system.
fn native(path: &str) -> PathBuf {
    if cfg!(windows) { path.split('/').collect() } else { path.into() }
}

/// Returns a path with `/`.
pub fn slashed(path: &str) -> String {
    if cfg!(windows) { path.replace('\\', "/") } else { path.to_owned() }
}

/// Returns a text in which the paths below a folder have `/`, also those in JSON.
fn with_slashes(text: &str, root: &str) -> String {
    if !cfg!(windows) {
        return text.to_owned();
    }
    let root = regex::escape(root).replace(r"\\", r"\\+");
    let paths = regex::Regex::new(&format!(r#"{root}[^\s`"']*"#)).unwrap();
    let shown = |found: &regex::Captures<'_>| slashed(&found[0].replace(r"\\", r"\"));
    paths.replace_all(text, shown).into_owned()
}

/// A process that is killed when the test is done with it or fails.
#[cfg_attr(not(unix), expect(dead_code, reason = "the tests that use it run on Unix"))]
pub struct Running(pub Child);

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends the lines of a pipe. It is read to its end in any case, so that the process never waits to write.
#[cfg_attr(not(unix), expect(dead_code, reason = "the tests that use it run on Unix"))]
pub fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// Kills a process and waits for its end.
pub fn kill(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Returns the keys of a JSON object.
pub fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Runs a future on a new runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// Returns the most memory that a process had at a time, in kB; 0 where the system does not say.
#[cfg_attr(not(unix), expect(dead_code, reason = "the tests that use it run on Unix"))]
pub fn peak_memory(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or_default()
}

pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// Sets the permissions of a file or folder.
#[cfg(unix)]
pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// Returns the permissions of a file or folder.
#[cfg(unix)]
pub fn mode(path: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap()) & 0o777
}

/// Writes a shell script that can be run as a program.
#[cfg(unix)]
pub fn write_program(path: &Path, script: &str) {
    std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    set_mode(path, 0o755);
}

/// Returns every file below a folder, in order.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

/// Copies a folder and gives every file the same old modification time, so that `dr` trusts it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
            set_time(&target, 1);
        }
    }
}

fn set_time(path: &Path, day: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000) + Duration::from_hours(24) * day;
    std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Writes `files` notes of `parts` sections each into the project's folder `notes`.
#[cfg_attr(not(unix), expect(dead_code, reason = "the tests that use it run on Unix"))]
pub fn write_notes(world: &World, files: usize, parts: usize) {
    for number in 0..files {
        let sections: Vec<_> = (0..parts)
            .map(|section| {
                let words = ["valve", "probe", "siren", "bed", "board", "cable", "lamp"];
                let word = |step: usize| words[(number * 3 + section * 5 + step) % words.len()];
                let sentence = format!("The {} of plot {number} needs the {} in part {section}.", word(0), word(1));
                format!("## Part {section}\n\n{}\n", [sentence.as_str(); 3].join(" "))
            })
            .collect();
        let text = format!("# Note {number}\n\nMarker mark{number}.\n\n{}", sections.join("\n"));
        world.write_on_day(1, &format!("notes/{:02}/note-{number:03}.md", number % 20), &text);
    }
}
