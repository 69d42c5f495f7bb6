use std::sync::{Arc, Mutex};

use super::super::catalogue;
use super::*;
use crate::model_server::{ModelServer, Request, Response};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const GRAPH: &[u8] = b"a graph of a model, which is a large file and lies elsewhere";
const SMALL: &str = "{}";

fn sha256(bytes: &[u8]) -> String {
    FileHash::Sha256(sha2::Sha256::digest(bytes).into()).to_string()
}

/// The git object id of `{}`.
const GIT_NAME: &str = "9e26dfeeb6e641a33dae4961196235bdb965b21b";

/// Sends a file, or the requested rest of it.
fn sent(request: &Request, bytes: &[u8]) -> Response {
    let range = request.headers.get("range").map(|range| range.trim_start_matches("bytes=").trim_end_matches('-'));
    let start: usize = range.map_or(0, |start| start.parse().unwrap());
    let status = if start > 0 { 206 } else { 200 };
    let response = Response::Bytes { status, headers: Vec::new(), body: bytes[start..].to_vec() };
    match start {
        0 => response,
        _ => response.with_header("Content-Range", &format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len())),
    }
}

/// Starts a hub whose large file is at another address, with this hash.
fn hub_with(elsewhere: &ModelServer, hash: &str) -> ModelServer {
    let (elsewhere, hash) = (format!("http://{}/graph?key=secret", elsewhere.address()), hash.to_owned());
    ModelServer::start(move |request| {
        let revision = request.path.split('/').nth(4).unwrap();
        assert!(["main", COMMIT].contains(&revision), "{}", request.path);
        if Path::new(&request.path).extension().is_some_and(|extension| extension == "onnx") {
            Response::text(302, "")
                .with_header("Location", &elsewhere)
                .with_header("X-Repo-Commit", COMMIT)
                .with_header("X-Linked-Etag", &format!("\"{hash}\""))
                .with_header("X-Linked-Size", &GRAPH.len().to_string())
        } else {
            sent(request, SMALL.as_bytes())
                .with_header("X-Repo-Commit", COMMIT)
                .with_header("ETag", &format!("\"{GIT_NAME}\""))
        }
    })
}

/// A store, and the files that are downloaded to it.
struct Machine {
    folder: tempfile::TempDir,
    source: ModelSource,
    cancel: CancellationToken,
    told: Mutex<Vec<Downloading>>,
}

impl Machine {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            source: catalogue::find("BGESmallENV15").unwrap().source(),
            cancel: CancellationToken::new(),
            told: Mutex::default(),
        }
    }

    fn store(&self) -> ModelStore {
        ModelStore::in_folder(self.folder.path().to_owned())
    }

    async fn download(&self, hub: &Hub) -> Result<(), DownloadError> {
        let listener = |event| self.told.lock().unwrap().push(event);
        let fetching = Fetching { listener: &listener, cancel: &self.cancel };
        hub.download(&self.store(), "BGESmallENV15", &self.source, &fetching).await
    }

    fn has_it(&self) -> bool {
        self.store().find(&self.source).is_some()
    }

    /// Returns the number of bytes in partial files.
    fn waiting(&self) -> u64 {
        let entries = fs::read_dir(self.folder.path().join("incoming")).unwrap().map(Result::unwrap);
        entries.filter(|entry| entry.file_name() != "lock").map(|entry| entry.metadata().unwrap().len()).sum()
    }
}

fn at(server: &ModelServer) -> Hub {
    Hub::of(&Environment::of([(ADDRESS, format!("http://{}", server.address()))])).unwrap()
}

#[tokio::test]
async fn model_is_downloaded_once_from_the_commit_that_the_first_file_is_of() {
    let machine = Machine::new();
    let elsewhere = ModelServer::start(|request| sent(request, GRAPH));
    let server = hub_with(&elsewhere, &sha256(GRAPH));
    machine.download(&at(&server)).await.unwrap();
    let files = machine.store().find(&machine.source).unwrap();
    assert_eq!(fs::read(&files.model).unwrap(), GRAPH);
    assert_eq!(machine.waiting(), 0);
    let paths: Vec<_> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths[0], "/Xenova/bge-small-en-v1.5/resolve/main/tokenizer.json");
    assert_eq!(paths[4], format!("/Xenova/bge-small-en-v1.5/resolve/{COMMIT}/onnx/model.onnx"));
    let last = machine.told.lock().unwrap().last().cloned().unwrap();
    assert_eq!((last.file.as_str(), last.done, last.size), ("onnx/model.onnx", GRAPH.len() as u64, Some(last.done)));
    machine.download(&at(&server)).await.unwrap();
    assert_eq!(server.count(), 5, "nothing is asked for twice");
}

#[tokio::test]
async fn file_with_another_hash_is_thrown_away() {
    let machine = Machine::new();
    let elsewhere = ModelServer::start(|request| sent(request, &[b'x'; GRAPH.len()]));
    let server = hub_with(&elsewhere, &sha256(GRAPH));
    let error = machine.download(&at(&server)).await.unwrap_err();
    assert!(matches!(error, DownloadError::Hash { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("--from"));
    assert_eq!((machine.has_it(), machine.waiting()), (false, 0));
}

#[tokio::test]
async fn download_that_broke_off_goes_on_where_it_stopped() {
    let machine = Machine::new();
    let half = String::from_utf8_lossy(&GRAPH[..30]).into_owned();
    let broken = ModelServer::always(Response::Truncated { body: half });
    let error = machine.download(&at(&hub_with(&broken, &sha256(GRAPH)))).await.unwrap_err();
    assert!(matches!(error, DownloadError::Broken { done: 30, .. }), "{error:?}");
    assert_eq!((broken.count(), machine.has_it(), machine.waiting()), (ATTEMPTS, false, 30));
    let elsewhere = ModelServer::start(|request| sent(request, GRAPH));
    machine.download(&at(&hub_with(&elsewhere, &sha256(GRAPH)))).await.unwrap();
    assert_eq!(elsewhere.requests()[0].headers["range"], "bytes=30-");
    assert!(machine.has_it());
}

#[tokio::test]
async fn part_that_is_not_of_the_file_is_found_by_the_hash() {
    let machine = Machine::new();
    fs::create_dir(machine.folder.path().join("incoming")).unwrap();
    fs::write(machine.folder.path().join("incoming").join(sha256(GRAPH)), "damaged").unwrap();
    let elsewhere = ModelServer::start(|request| sent(request, GRAPH));
    let server = hub_with(&elsewhere, &sha256(GRAPH));
    assert!(matches!(machine.download(&at(&server)).await, Err(DownloadError::Hash { .. })));
    machine.download(&at(&server)).await.unwrap();
    assert!(machine.has_it());
}

#[tokio::test]
async fn hub_without_the_model_is_an_error_with_the_status() {
    let machine = Machine::new();
    let server = ModelServer::always(Response::text(404, "Entry not found"));
    let error = machine.download(&at(&server)).await.unwrap_err();
    assert!(error.to_string().starts_with("status 404 from http://127.0.0.1:"), "{error}");
    assert_eq!((server.count(), machine.has_it()), (1, false));
}

#[tokio::test]
async fn interrupted_download_ends_at_once_and_keeps_what_came() {
    let machine = Arc::new(Machine::new());
    let half = String::from_utf8_lossy(&GRAPH[..30]).into_owned();
    let elsewhere = ModelServer::always(Response::Truncated { body: half });
    let server = hub_with(&elsewhere, &sha256(GRAPH));
    let cancel = machine.cancel.clone();
    let listener = move |event: Downloading| {
        if event.done == 30 {
            cancel.cancel();
        }
    };
    let fetching = Fetching { listener: &listener, cancel: &machine.cancel };
    let result = at(&server).download(&machine.store(), "m", &machine.source, &fetching).await;
    assert!(matches!(result, Err(DownloadError::Cancelled)), "{result:?}");
    assert_eq!((elsewhere.count(), machine.has_it(), machine.waiting()), (1, false, 30));
}

#[tokio::test]
async fn silent_hub_and_a_file_that_is_too_large_are_given_up() {
    let machine = Machine::new();
    let silent = ModelServer::always(Response::Hang);
    let limits = DownloadLimits { silence: Duration::from_millis(20), ..LIMITS };
    let result = machine.download(&Hub { limits, ..at(&silent) }).await;
    assert!(matches!(result, Err(DownloadError::Silent { .. })), "{result:?}");
    // The server does not count a request that is abandoned before it has read it.
    assert!(silent.count() <= ATTEMPTS);

    let elsewhere = ModelServer::start(|request| sent(request, GRAPH));
    let server = hub_with(&elsewhere, &sha256(GRAPH));
    let limits = DownloadLimits { bytes: 50, ..LIMITS };
    let result = machine.download(&Hub { limits, ..at(&server) }).await;
    assert!(matches!(result, Err(DownloadError::TooLarge { .. })), "{result:?}");
    assert_eq!(machine.waiting(), 0, "its size is known before it comes");
}

#[tokio::test]
async fn hub_that_does_not_say_what_it_sends_is_not_believed() {
    for header in ["X-Repo-Commit", "ETag"] {
        let machine = Machine::new();
        let server = ModelServer::start(move |_| {
            let value = if header == "ETag" { GIT_NAME } else { COMMIT };
            Response::text(200, SMALL).with_header(header, value)
        });
        let result = machine.download(&at(&server)).await;
        assert!(matches!(result, Err(DownloadError::Unidentified { .. })), "{result:?}");
    }
}

#[tokio::test]
async fn key_is_for_the_hub_and_not_for_where_its_files_lie() {
    let machine = Machine::new();
    let elsewhere = ModelServer::start(|request| sent(request, GRAPH));
    let server = hub_with(&elsewhere, &sha256(GRAPH));
    let variables = [(ADDRESS, format!("http://{}", server.address())), (KEY, "hf_very-secret".to_owned())];
    machine.download(&Hub::of(&Environment::of(variables)).unwrap()).await.unwrap();
    assert!(server.requests().iter().all(|request| request.headers["authorization"] == "Bearer hf_very-secret"));
    assert!(!elsewhere.received().contains("secret-") && !elsewhere.received().contains("hf_very"));
}

#[test]
fn hash_is_read_in_the_forms_that_hubs_write() {
    let git = Some(FileHash::parse(GIT_NAME).unwrap().to_string());
    assert_eq!(git.as_deref(), Some(GIT_NAME));
    assert!(matches!(FileHash::parse(&format!("W/\"{GIT_NAME}\"")), Some(FileHash::Git(_))));
    assert!(matches!(FileHash::parse(&format!("\"{}\"", sha256(GRAPH))), Some(FileHash::Sha256(_))));
    for etag in [
        "",
        "abc",
        "\"686897696a7c876b7e\"",
        "zz26dfeeb6e641a33dae4961196235bdb965b21b",
        "é26dfeeb6e641a33dae4961196235bdb965b21b",
    ] {
        assert_eq!(FileHash::parse(etag), None, "{etag}");
    }
}
