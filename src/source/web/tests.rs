//! Engines and pages on loopback: real servers that do as a test says.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::date;
use serde_json::{Value, json};

use super::address::Closed;
use super::fetch::FetchError;
use super::pages::tests::page;
use super::polite::Contact;
use super::url::ParseWebUrlError;
use super::*;
use crate::base::clock::{ManualClock, Moment, SystemClock};
use crate::base::http::{BaseUrl, Secret};
use crate::base::id::ContentHash;
use crate::model_server::{ModelServer, Request, Response};

fn answer(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Response {
    let headers = vec![("Content-Type", content_type.to_owned())];
    Response::Bytes { status, headers, body: body.as_ref().to_vec() }
}

fn html(body: &str) -> Response {
    answer(200, "text/html; charset=utf-8", body)
}

fn redirect(to: &str) -> Response {
    Response::text(302, "").with_header("Location", to)
}

fn busy(status: u16, body: &str) -> Response {
    Response::text(status, body).with_header("Retry-After", "7")
}

/// A server of search results or pages.
struct Server(ModelServer);

impl Server {
    /// Starts a server that answers for a path as `script` says.
    fn start(script: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        Self(ModelServer::start(move |request| script(&request.path)))
    }

    /// Starts a site of one page that has no `robots.txt`.
    fn page(answer: Response) -> Self {
        Self::start(move |path| if path == "/robots.txt" { Response::text(404, "") } else { answer.clone() })
    }

    fn base(&self) -> BaseUrl {
        format!("http://{}", self.0.address()).parse().unwrap()
    }

    fn url(&self, path: &str) -> WebUrl {
        format!("http://{}{path}", self.0.address()).parse().unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.0.requests().iter().map(line).collect()
    }

    fn first(&self) -> Request {
        self.0.requests().remove(0)
    }

    /// Returns a fetcher that may ask this server, and no other machine around here.
    fn fetcher(&self) -> Fetcher {
        let options = FetchOptions {
            allowed_hosts: vec![self.0.address().to_string().parse().unwrap()],
            ..FetchOptions::default()
        };
        Fetcher::new(options, Arc::new(ManualClock::at(Moment(7)))).unwrap()
    }
}

fn line(request: &Request) -> String {
    format!("{} {}", request.method, request.path)
}

fn key() -> Secret {
    "tok-very-secret".parse().unwrap()
}

fn contact() -> Contact {
    "ada@example.org".parse().unwrap()
}

fn set_up(engine: SearchEngine, address: BaseUrl) -> EngineClient {
    EngineClient::new(engine, address, engine.has_key().then(key), Some(&contact())).unwrap()
}

/// Returns every engine, set up at an address.
fn engines(address: &BaseUrl) -> Vec<Box<dyn SearchProvider>> {
    SearchEngine::all().map(|known| -> Box<dyn SearchProvider> { Box::new(set_up(known, address.clone())) }).collect()
}

fn has_key(engine: &dyn SearchProvider) -> bool {
    SearchEngine::all().any(|known| known.name() == engine.name() && known.has_key())
}

fn query(text: &'static str) -> WebQuery {
    let dates = DateRange { since: Some(date(2026, 1, 2)), until: Some(date(2026, 2, 3)) };
    WebQuery { text: Outbound::fixed(text), limit: 5, dates }
}

/// Returns what each engine is asked and how its answer is read.
async fn exchange(engine: usize, reply: &Value) -> (Request, Result<Vec<WebHit>, WebError>) {
    exchange_text(engine, &reply.to_string()).await
}

async fn exchange_text(engine: usize, reply: &str) -> (Request, Result<Vec<WebHit>, WebError>) {
    let answer = Response::text(200, reply);
    let server = Server::start(move |_| answer.clone());
    let hits = engines(&server.base())[engine].search(&query("beds & valves")).await;
    (server.first(), hits)
}

type Shown<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

fn shown(hits: &[WebHit]) -> Vec<Shown<'_>> {
    fn show(hit: &WebHit) -> Shown<'_> {
        (hit.url.as_str(), &hit.title, &hit.snippet, hit.published.as_deref())
    }
    hits.iter().map(show).collect()
}

#[tokio::test]
async fn searxng_is_asked_and_read() {
    let reply = json!({ "query": "x", "results": [
        { "url": "https://a.example/", "title": "A", "content": " Valves\nopen. ", "publishedDate": "2026-01-05T00:00:00", "score": 2.5 },
        { "url": "ftp://b.example/", "title": "B", "content": "…" },
        { "url": 7 }, "no entry", { "url": "https://c.example/", "title": null, "content": ["x"] },
        { "url": "https://d.example/x", "content": "No title.", "publishedDate": null },
    ] });
    let (request, hits) = exchange(0, &reply).await;
    assert_eq!(line(&request), "GET /search?q=beds+%26+valves&format=json");
    assert!(request.headers["user-agent"].starts_with("dr/"));
    let hits = hits.unwrap();
    let expected = [
        ("https://a.example/", "A", "Valves open.", Some("2026-01-05T00:00:00")),
        ("https://d.example/x", "d.example", "No title.", None),
    ];
    assert_eq!(shown(&hits), expected);
}

#[tokio::test]
async fn tavily_is_asked_and_read() {
    let reply = json!({ "answer": null, "results": [
        { "url": "https://a.example/", "title": "A", "content": "Valves.", "score": 0.9, "raw_content": null },
    ] });
    let (request, hits) = exchange(1, &reply).await;
    assert_eq!(
        (line(&request).as_str(), request.headers["authorization"].as_str()),
        ("POST /search", "Bearer tok-very-secret")
    );
    let expected = json!({
        "query": "beds & valves", "max_results": 5, "search_depth": "basic", "include_answer": false,
        "start_date": "2026-01-02", "end_date": "2026-02-03",
    });
    assert_eq!(request.json, expected);
    assert_eq!(shown(&hits.unwrap()), [("https://a.example/", "A", "Valves.", None)]);
}

#[tokio::test]
async fn brave_is_asked_and_read() {
    let reply = json!({ "type": "search", "web": { "results": [
        { "url": "https://a.example/", "title": "A", "description": "<strong>Valves</strong> &amp; beds", "page_age": "2026-01-05T10:00:00" },
    ] } });
    let (request, hits) = exchange(2, &reply).await;
    let expected =
        "GET /res/v1/web/search?q=beds+%26+valves&count=5&text_decorations=false&freshness=2026-01-02to2026-02-03";
    assert_eq!(
        (line(&request).as_str(), request.headers["x-subscription-token"].as_str()),
        (expected, "tok-very-secret")
    );
    let expected = [("https://a.example/", "A", "Valves & beds", Some("2026-01-05T10:00:00"))];
    assert_eq!(shown(&hits.unwrap()), expected);
    assert_eq!(exchange(2, &json!({ "type": "search" })).await.1.unwrap(), [], "nothing was found");
}

#[tokio::test]
async fn exa_is_asked_and_read() {
    let reply = json!({ "results": [
        { "url": "https://a.example/", "title": "A", "highlights": ["Valves.", "Beds."], "text": "…", "publishedDate": "2026-01-05T10:00:00.000Z", "score": null },
        { "url": "https://b.example/", "title": "B", "text": "The beginning." },
    ] });
    let (request, hits) = exchange(3, &reply).await;
    assert_eq!((line(&request).as_str(), request.headers["x-api-key"].as_str()), ("POST /search", "tok-very-secret"));
    let expected = json!({
        "query": "beds & valves", "numResults": 5,
        "contents": { "highlights": true, "text": { "maxCharacters": 1000 } },
        "startPublishedDate": "2026-01-02T00:00:00.000Z", "endPublishedDate": "2026-02-03T23:59:59.999Z",
    });
    assert_eq!(request.json, expected);
    let expected = [
        ("https://a.example/", "A", "Valves. … Beds.", Some("2026-01-05T10:00:00.000Z")),
        ("https://b.example/", "B", "The beginning.", None),
    ];
    assert_eq!(shown(&hits.unwrap()), expected);
}

#[tokio::test]
async fn wikipedia_is_asked_and_read() {
    let reply = json!({ "pages": [
        { "id": 1, "key": "Valve/Ball?", "title": "Valve/Ball?", "description": "a device",
          "excerpt": "A <span class=\"searchmatch\">valve</span> &amp; 1 < 2", "thumbnail": null },
        { "id": 2, "key": "", "title": "No key" }, "no entry",
    ] });
    let (request, hits) = exchange(4, &reply).await;
    assert_eq!(line(&request), "GET /w/rest.php/v1/search/page?q=beds+%26+valves&limit=5");
    assert!(request.headers["user-agent"].ends_with(" (mailto:ada@example.org)"));
    let hits = hits.unwrap();
    let [hit] = &hits[..] else { panic!("{hits:?}") };
    assert!(hit.url.as_str().ends_with("/wiki/Valve%2FBall%3F"), "{}", hit.url.as_str());
    assert_eq!((hit.title.as_str(), hit.snippet.as_str()), ("Valve/Ball? (Wikipedia)", "a device: A valve & 1 < 2"));
}

#[tokio::test]
async fn arxiv_is_asked_and_read() {
    let reply = r#"<?xml version="1.0" encoding="UTF-8"?>
        <feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom"><title>query</title>
        <entry><id>http://arxiv.org/abs/2401.00001v2</id><published>2026-01-05T17:00:00Z</published>
        <title>On
          valves</title><summary> Valves &lt; beds. </summary><author><name>Ada Lovelace</name></author>
        <arxiv:doi>10.1/v</arxiv:doi><link href="http://arxiv.org/abs/2401.00001v2" rel="alternate"/></entry></feed>"#;
    let (request, hits) = exchange_text(5, reply).await;
    let expected = "GET /api/query?search_query=%28all%3Abeds+OR+all%3Avalves%29+AND+submittedDate%3A%5B202601020000+TO+\
                    202602032359%5D&max_results=5&sortBy=relevance";
    assert_eq!(line(&request), expected);
    let title = "On valves. Ada Lovelace, arXiv, 2026, doi:10.1/v";
    let expected = [("https://arxiv.org/abs/2401.00001v2", title, "Valves < beds.", Some("2026-01-05T17:00:00Z"))];
    assert_eq!(shown(&hits.unwrap()), expected);
    for reply in ["no XML", "<feed>", "<!DOCTYPE feed [<!ENTITY a \"b\">]><feed>&a;</feed>"] {
        assert!(matches!(exchange_text(5, reply).await.1, Err(WebError::BadReply { .. })), "{reply}");
    }
}

#[tokio::test]
async fn openalex_is_asked_and_read() {
    let reply = json!({ "meta": {}, "results": [ {
        "doi": "https://doi.org/10.1/v", "display_name": "On valves", "publication_date": "2026-01-05",
        "authorships": [{ "author": { "display_name": "Ada Lovelace" } }],
        "primary_location": { "source": { "display_name": "Memoirs" } },
        "best_oa_location": { "landing_page_url": "https://a.example/v" },
        "abstract_inverted_index": { "open": [1], "Valves": [0], "often.": [2] },
    }, { "display_name": null }, { "display_name": "Closed", "doi": "https://doi.org/10.1/c", "best_oa_location": null } ] });
    let (request, hits) = exchange(6, &reply).await;
    assert!(line(&request).starts_with("GET /works?search=beds+%26+valves&per_page=5&select="), "{}", line(&request));
    assert!(line(&request).ends_with("&filter=from_publication_date%3A2026-01-02%2Cto_publication_date%3A2026-02-03"));
    assert_eq!(request.headers["authorization"], "Bearer tok-very-secret");
    let title = "On valves. Ada Lovelace, Memoirs, 2026, doi:10.1/v";
    let expected = [
        ("https://a.example/v", title, "Valves open often.", Some("2026-01-05")),
        ("https://doi.org/10.1/c", "Closed. doi:10.1/c", "", None),
    ];
    assert_eq!(shown(&hits.unwrap()), expected);
}

#[tokio::test]
async fn crossref_is_asked_and_read() {
    let reply = json!({ "status": "ok", "message": { "items": [ {
        "DOI": "10.1/v", "title": ["On <i>valves</i>"], "container-title": ["Memoirs"],
        "author": [{ "given": "Ada", "family": "Lovelace" }, { "name": "The Valve Group" }],
        "issued": { "date-parts": [[2026, 1, 5]] }, "abstract": "<jats:p>Valves &amp; beds.</jats:p>",
    }, { "DOI": "10.1/n" }, { "DOI": "10.1/y", "title": ["Year"], "issued": { "date-parts": [[null]] } } ] } });
    let (request, hits) = exchange(7, &reply).await;
    assert!(line(&request).starts_with("GET /works?query=beds+%26+valves&rows=5&select="), "{}", line(&request));
    let expected = "&filter=from-pub-date%3A2026-01-02%2Cuntil-pub-date%3A2026-02-03&mailto=ada%40example.org";
    assert!(line(&request).ends_with(expected), "{}", line(&request));
    let title = "On valves. Ada Lovelace, The Valve Group, Memoirs, 2026, doi:10.1/v";
    let expected = [
        ("https://doi.org/10.1/v", title, "Valves & beds.", Some("2026-01-05")),
        ("https://doi.org/10.1/y", "Year. doi:10.1/y", "", None),
    ];
    assert_eq!(shown(&hits.unwrap()), expected);
}

#[tokio::test]
async fn europe_pmc_is_asked_and_read() {
    let reply = json!({ "resultList": { "result": [ {
        "id": "1", "source": "MED", "doi": "10.1/v", "title": "On valves.", "authorString": "Lovelace A, Babbage C.",
        "journalInfo": { "journal": { "title": "Memoirs" } }, "pubYear": "2026",
        "firstPublicationDate": "2026-01-05", "abstractText": "<h4>Aim</h4>Valves.",
    }, { "id": "2", "source": "PPR", "title": "No DOI", "pubYear": "2025" } ] } });
    let (request, hits) = exchange(8, &reply).await;
    let expected = "GET /europepmc/webservices/rest/search?query=beds+valves+AND+%28FIRST_PDATE%3A%5B2026-01-02+TO+\
                    2026-02-03%5D%29&format=json&resultType=core&pageSize=5";
    assert_eq!(line(&request), expected);
    let title = "On valves. Lovelace A, Babbage C, Memoirs, 2026, doi:10.1/v";
    let expected = [
        ("https://doi.org/10.1/v", title, "AimValves.", Some("2026-01-05")),
        ("https://europepmc.org/article/PPR/2", "No DOI. 2025", "", Some("2025")),
    ];
    assert_eq!(shown(&hits.unwrap()), expected);
}

#[tokio::test]
async fn several_engines_are_merged_by_page_and_place_and_one_that_fails_is_noted() {
    let hit = |url: &str| json!({ "url": url, "title": url, "snippet": "valves" });
    let list = |urls: &[&str]| json!({ "valves": urls.iter().map(|url| hit(url)).collect::<Vec<_>>() });
    let folder = tempfile::tempdir().unwrap();
    let fixture = |urls: &[&str]| -> Arc<dyn SearchProvider> { Arc::new(FixtureProvider::read(&list(urls)).unwrap()) };
    let server = Server::start(|_| Response::json(403, &json!({ "error": "no" })));
    let down = || -> Arc<dyn SearchProvider> { Arc::new(set_up(SearchEngine::Wikipedia, server.base())) };
    let source = |providers| {
        let pages = PageStore::new(folder.path().join("pages"), folder.path().join("key"));
        WebSource::new(providers, None, pages, Arc::new(ManualClock::at(Moment(7))))
    };
    let twice = ["https://a.example/1", "https://b.example/1", "https://b.example/1?utm_source=x"];
    let found = source(vec![fixture(&twice)]).search(&Outbound::fixed("valves"), 10).await.unwrap();
    assert_eq!(found.passages[0].id, twice[0], "one engine orders its pages");
    let first = ["https://a.example/1", "https://a.example/2", "https://b.example/1"];
    let second = ["https://c.example/1", "https://b.example/1?utm_source=x"];
    let three = source(vec![fixture(&first), down(), fixture(&second)]);
    let query = Outbound::fixed("valves");
    let found = three.search(&query, 10).await.unwrap();
    let ids: Vec<_> = found.passages.iter().map(|passage| passage.id.as_str()).collect();
    assert_eq!(ids, ["https://b.example/1", first[0], second[0], first[1]]);
    assert_eq!(found.notes.len(), 1);
    assert!(found.notes[0].starts_with("a search engine was left out: `wikipedia`"), "{:?}", found.notes);
    for _ in 0..3 {
        let found = three.search(&query, 10).await.unwrap();
        assert_eq!(found.passages.len(), 4, "the others still answer");
    }
    assert_eq!(server.lines().len(), 3, "one that fails three searches in a row is not asked again");
    let nothing = source(vec![down(), down()]).search(&Outbound::fixed("valves"), 10).await;
    assert!(matches!(nothing, Err(SourceError::Down { .. })));
    // Another query may be answered, whichever engine refuses this one.
    let refuses = || -> Arc<dyn SearchProvider> { Arc::new(RefusesQueries) };
    for providers in [vec![down(), refuses()], vec![refuses(), down()]] {
        let nothing = source(providers).search(&Outbound::fixed("valves"), 10).await;
        assert!(matches!(nothing, Err(SourceError::Failed { .. })));
    }
}

/// An engine that rejects each query.
struct RefusesQueries;

impl SearchProvider for RefusesQueries {
    fn name(&self) -> &'static str {
        "refuses"
    }

    fn address(&self) -> Option<&BaseUrl> {
        None
    }

    fn search<'a>(&'a self, _: &'a WebQuery) -> futures::future::BoxFuture<'a, Result<Vec<WebHit>, WebError>> {
        let refused = WebError::BadQuery { provider: self.name(), reason: "too long".into() };
        Box::pin(std::future::ready(Err(refused)))
    }
}

#[test]
fn version_changes_with_the_address_of_an_engine() {
    let folder = tempfile::tempdir().unwrap();
    let version = |address: &str| {
        let pages = PageStore::new(folder.path().join("pages"), folder.path().join("key"));
        let engines = engines(&address.parse().unwrap()).into_iter().map(Arc::from).collect();
        WebSource::new(engines, None, pages, Arc::new(ManualClock::at(Moment(7)))).version()
    };
    let [here, there] = ["http://localhost:1", "http://localhost:2/wiki"].map(version);
    assert_eq!(here.matches("http://localhost:1").count(), engines(&"http://localhost:1".parse().unwrap()).len());
    assert_eq!(here.replace("http://localhost:1", "http://localhost:2/wiki"), there);
}

#[tokio::test]
async fn failure_of_an_engine_says_what_can_be_done_and_never_the_key() {
    let said = json!({ "detail": { "error": "bad key tok-very-secret" } }).to_string();
    let elsewhere = "https://elsewhere.example/?k=tok-very-secret";
    for (answer, class, says) in [
        (busy(429, &said), "RateLimited", "retry_after: Some(7s)"),
        (busy(500, &said), "Transient", "retry_after: Some(7s)"),
        (busy(502, "<html>Bad gateway</html>"), "Transient", "reason: \"status 502\""),
        (Response::text(402, "{}"), "Quota", ""),
        (Response::text(432, "{}"), "Quota", ""),
        (Response::text(429, "{\"error\":\"monthly quota reached\"}"), "Quota", ""),
        (Response::text(400, &said), "BadQuery", ""),
        (Response::text(404, &said), "Refused", ""),
        (redirect(elsewhere).with_status(301), "Refused", ""),
        (Response::text(200, "<html>Sign in, tok-very-secret</html>"), "BadReply", ""),
        (Response::text(200, "{\"results\": {\"a\": 1}, \"web\": []}"), "BadReply", ""),
        (Response::text(200, "[]"), "BadReply", ""),
    ] {
        let said = answer.clone();
        let server = Server::start(move |_| said.clone());
        for engine in engines(&server.base()) {
            let error = engine.search(&query("beds")).await.unwrap_err();
            let text = format!("{error:?} {error} {:?}", error.hint());
            // An engine that has no key was not given this one.
            assert!(!has_key(&*engine) || !text.contains("very-secret"), "{text}");
            assert!(text.len() < 1_000 && !text.contains("<html>"), "{text}");
            assert!(text.starts_with(class) && text.contains(says), "{} {answer:?}: {text}", engine.name());
        }
        assert_eq!(server.lines().len(), engines(&server.base()).len(), "each is asked once");
    }
}

#[tokio::test]
async fn key_that_is_not_taken_is_told_from_an_engine_that_answers_no_programs() {
    let server = Server::start(|_| Response::json(403, &json!({ "error": "no" })));
    for engine in engines(&server.base()) {
        let error = engine.search(&query("beds")).await.unwrap_err();
        if engine.name() == "searxng" {
            assert!(error.hint().unwrap().contains("search.formats"), "{error}");
        }
        assert_eq!(matches!(error, WebError::Authentication { .. }), has_key(&*engine), "{error}");
    }
}

#[tokio::test]
async fn answer_that_is_too_large_or_breaks_off_is_no_answer() {
    let large = answer(200, "application/json", format!("\"{}\"", "a".repeat(5 << 20)));
    let broken = Response::Truncated { body: "{\"results\": []".into() };
    for (answer, is_bad) in [(large, true), (broken, false)] {
        let server = Server::start(move |_| answer.clone());
        let error = engines(&server.base())[0].search(&query("beds")).await.unwrap_err();
        assert_eq!(matches!(error, WebError::BadReply { .. }), is_bad, "{error}");
        assert_eq!(matches!(error, WebError::Transient { .. }), !is_bad, "{error}");
    }
}

#[tokio::test]
async fn search_is_repeated_while_that_can_help_and_leaves_out_other_days() {
    let count = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&count);
    let server = Server::start(move |_| {
        let mut count = counted.lock().unwrap();
        *count += 1;
        let hit = |url: &str, day: &str| json!({ "url": url, "title": "T", "content": "C", "publishedDate": day });
        let hits = [
            hit("https://old.example/", "2025-12-31"),
            hit("https://a.example/", "2026-01-05"),
            hit("https://b.example/", "soon"),
        ];
        match *count {
            1 => busy(429, ""),
            2 => Response::text(503, ""),
            _ => Response::json(200, &json!({ "results": hits })),
        }
    });
    let clock = ManualClock::at(Moment(0));
    let engine = set_up(SearchEngine::SearxNg, server.base());
    let hits = search_patiently(&engine, &query("beds"), &clock, || 1.0).await.unwrap();
    assert_eq!(hits.iter().map(|hit| hit.url.host()).collect::<Vec<_>>(), ["a.example", "b.example"]);
    assert_eq!(clock.now(), Moment(9_000));

    let server = Server::start(|_| Response::text(401, ""));
    let engine = set_up(SearchEngine::Tavily, server.base());
    search_patiently(&engine, &query("beds"), &clock, || 1.0).await.unwrap_err();
    assert_eq!((server.lines().len(), clock.now()), (1, Moment(9_000)));
}

#[tokio::test]
async fn page_of_a_busy_server_is_asked_for_once_more_when_the_server_says() {
    let server = |always: bool| {
        let count = Arc::new(Mutex::new(0));
        Server::start(move |path| {
            if path == "/robots.txt" {
                return Response::text(404, "");
            }
            let mut count = count.lock().unwrap();
            *count += 1;
            if always || *count == 1 { busy(503, "") } else { html("<title>Beds</title><p>Valves open at six.</p>") }
        })
    };
    let recovers = server(false);
    let page = recovers.fetcher().fetch(&recovers.url("/a")).await.unwrap();
    // The fetcher's clock stood at 7 ms.
    assert_eq!((page.text.as_str(), page.fetched_at), ("Valves open at six.", Moment(7_007)));
    let down = server(true);
    let error = down.fetcher().fetch(&down.url("/a")).await.unwrap_err();
    assert_eq!(error, FetchError::Status { status: 503, retry_after: Some(Duration::from_secs(7)) });
    assert_eq!(down.lines(), ["GET /robots.txt", "GET /a", "GET /a"]);
}

#[tokio::test]
async fn page_is_fetched_as_text() {
    let server = Server::page(html("<title>Beds</title><p>Valves open at six.</p>"));
    let page = server.fetcher().fetch(&server.url("/a/?utm_source=x#top")).await.unwrap();
    assert_eq!((page.title.as_str(), page.text.as_str()), ("Beds", "Valves open at six."));
    assert_eq!((page.content_type.as_str(), page.fetched_at), ("text/html", Moment(7)));
    assert_eq!(page.url, server.url("/a"));
    assert_eq!(page.content_hash, ContentHash::of(b"Valves open at six."));
    assert_eq!(server.lines(), ["GET /robots.txt", "GET /a/?utm_source=x"]);
    let sent = server.first().headers;
    assert!(sent["user-agent"].starts_with("dr/"));
    for name in ["cookie", "referer", "authorization"] {
        assert!(!sent.contains_key(name), "{name}");
    }
}

#[tokio::test]
async fn page_on_this_machine_is_refused_by_number_and_by_name() {
    let server = Server::page(html("<p>secret</p>"));
    let fetcher = Fetcher::new(FetchOptions::default(), Arc::new(ManualClock::default())).unwrap();
    let port = server.0.address().port();
    for host in ["127.0.0.1", "localhost", "LOCALHOST", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let error = fetcher.fetch(&format!("http://{host}:{port}/").parse().unwrap()).await.unwrap_err();
        assert!(matches!(&error, FetchError::Closed(_)), "{host}: {error}");
    }
    assert_eq!(server.lines(), [""; 0]);
}

#[tokio::test]
async fn name_that_was_allowed_is_fetched() {
    let server = Server::page(html("<p>Beds.</p>"));
    let allowed = format!("localhost:{}", server.0.address().port());
    let options = FetchOptions { allowed_hosts: vec![allowed.parse().unwrap()], ..FetchOptions::default() };
    let fetcher = Fetcher::new(options, Arc::new(ManualClock::default())).unwrap();
    assert_eq!(fetcher.fetch(&format!("http://{allowed}/").parse().unwrap()).await.unwrap().text, "Beds.");
    let other = format!("http://localhost:{}/", if server.0.address().port() == 80 { 81 } else { 80 });
    assert!(matches!(fetcher.fetch(&other.parse().unwrap()).await, Err(FetchError::Closed(_))));
}

#[tokio::test]
async fn only_a_host_that_can_be_allowed_is_proposed_for_allowed_hosts() {
    let allowed_hosts = vec!["169.254.169.254".parse().unwrap()];
    let options = FetchOptions { allowed_hosts, ..FetchOptions::default() };
    let fetcher = Fetcher::new(options, Arc::new(ManualClock::default())).unwrap();
    for (host, can_be_allowed) in [("10.0.0.1", true), ("169.254.169.254", false), ("metadata.google.internal", false)]
    {
        let error = fetcher.fetch(&format!("http://{host}/").parse().unwrap()).await.unwrap_err();
        assert_eq!(error.hint().is_some(), can_be_allowed, "{error}");
    }
}

#[tokio::test]
async fn redirect_is_followed_where_it_may_lead_and_nowhere_else() {
    let inner = Server::page(html("<p>secret</p>"));
    let inside = inner.url("/").to_string();
    let closed = |host: &str| FetchError::Closed(Closed::Private(host.to_owned()));
    for (target, expected) in [
        (inside.as_str(), closed("127.0.0.1")),
        ("http://169.254.169.254/latest/meta-data/", FetchError::Closed(Closed::Metadata("169.254.169.254".into()))),
        ("//[::1]/", closed("::1")),
        ("http://0x7f.1/", closed("127.0.0.1")),
        ("file:///etc/passwd", FetchError::BadRedirect(ParseWebUrlError::WrongScheme)),
        ("data:text/html,x", FetchError::BadRedirect(ParseWebUrlError::WrongScheme)),
        ("http://me:you@example.org/", FetchError::BadRedirect(ParseWebUrlError::HasUser)),
        ("http://[", FetchError::BadRedirect(ParseWebUrlError::NotAnAddress)),
        ("/loop", FetchError::TooManyRedirects),
    ] {
        let server = Server::page(redirect(target));
        assert_eq!(server.fetcher().fetch(&server.url("/a")).await.unwrap_err(), expected, "{target}");
        assert!(server.lines().len() <= 7, "{target}");
    }
    assert_eq!(inner.lines(), [""; 0]);

    let server = Server::start(|path| match path {
        "/robots.txt" => Response::text(404, ""),
        "/a" => redirect("b?x=1"),
        _ => html("<p>Here.</p>"),
    });
    let page = server.fetcher().fetch(&server.url("/a")).await.unwrap();
    assert_eq!((page.requested, page.url), (server.url("/a"), server.url("/b?x=1")));
}

#[tokio::test]
async fn owner_of_a_site_is_asked_once_and_obeyed() {
    let server = Server::start(|path| match path {
        "/robots.txt" => answer(200, "text/plain", "user-agent: *\ndisallow: /private"),
        "/a" => redirect("/private/b"),
        _ => html("<p>Open.</p>"),
    });
    let fetcher = server.fetcher();
    let origin = server.url("/").origin();
    assert_eq!(fetcher.fetch(&server.url("/open")).await.unwrap().text, "Open.");
    for path in ["/private/x", "/a"] {
        let error = fetcher.fetch(&server.url(path)).await.unwrap_err();
        assert_eq!(error, FetchError::Robots { origin: origin.clone() }, "{path}");
    }
    assert_eq!(server.lines(), ["GET /robots.txt", "GET /open", "GET /a"]);
}

#[tokio::test]
async fn site_that_cannot_be_asked_is_left_alone() {
    for answer in [
        Response::text(503, ""),
        Response::text(429, ""),
        Response::Drop,
        answer(200, "text/plain", "#".repeat(600 << 10)),
    ] {
        let server = Server::start(move |_| answer.clone());
        let fetcher = server.fetcher();
        for _ in 0..2 {
            let error = fetcher.fetch(&server.url("/")).await.unwrap_err();
            assert_eq!(error, FetchError::RobotsUnknown { origin: server.url("/").origin() });
        }
        assert_eq!(server.lines().iter().filter(|line| *line != "GET /robots.txt").count(), 0);
    }
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |line| match line {
        "GET /robots.txt" if asked.fetch_add(1, Ordering::Relaxed) == 0 => Response::text(503, ""),
        "GET /robots.txt" => Response::text(404, ""),
        _ => answer(200, "text/plain", "Open."),
    });
    assert_eq!(server.fetcher().fetch(&server.url("/")).await.unwrap().text, "Open.", "it is asked twice");
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn page_is_decompressed_only_up_to_the_size_limit() {
    let encoded = |with: &str, body: &[u8]| answer(200, "text/plain", body).with_header("Content-Encoding", with);
    let bomb = packed(&vec![b'a'; 64 << 20]);
    assert!(bomb.len() < 100 << 10);
    let max_bytes = FetchOptions::default().max_bytes;
    for (answer, expected) in [
        (encoded("gzip", &packed(b"Valves open.")), Ok("Valves open.")),
        (encoded("gzip", &bomb), Err(FetchError::TooLarge { max_bytes })),
        (encoded("gzip", b"no gzip"), Err(FetchError::Packed { found: "gzip".into() })),
        (encoded("br", b"x"), Err(FetchError::Packed { found: "br".into() })),
        (answer(200, "text/plain", vec![b'a'; max_bytes + 1]), Err(FetchError::TooLarge { max_bytes })),
    ] {
        let server = Server::page(answer);
        let page = server.fetcher().fetch(&server.url("/")).await;
        assert_eq!(page.as_ref().map(|page| page.text.as_str()), expected.as_ref().map(|text| *text));
        assert_eq!(server.first().headers["accept-encoding"], "identity");
    }
}

#[tokio::test]
async fn page_that_never_ends_is_given_up() {
    let headers = vec![("Content-Type", "text/html; charset=utf-8".to_owned())];
    let slow = Response::Drip { headers, body: "<p>Beginning …</p>".into(), pause: Duration::from_millis(100) };
    for answer in [slow, Response::Hang] {
        let server = Server::page(answer);
        let allowed_hosts = vec![server.0.address().to_string().parse().unwrap()];
        let options = FetchOptions { timeout: Duration::from_millis(300), allowed_hosts, ..FetchOptions::default() };
        let fetcher = Fetcher::new(options, Arc::new(SystemClock)).unwrap();
        let error = fetcher.fetch(&server.url("/")).await.unwrap_err();
        assert_eq!(error, FetchError::TimedOut { millis: 300 });
    }
}

#[tokio::test]
async fn page_is_read_as_what_it_is_or_refused() {
    let without_child = || {
        let reason = "failed to start the process that reads it: this program is not `dr`";
        FetchError::Unreadable { reason: reason.to_owned() }
    };
    let refused = |found: &str| Err(FetchError::ContentType { found: found.to_owned() });
    for (content_type, body, expected) in [
        ("text/html; charset=iso-8859-1", b"<p>caf\xe9</p>".as_slice(), Ok(("café", "text/html"))),
        ("text/html", b"<meta charset='shift_jis'><p>\x93\xfa\x96{</p>", Ok(("日本", "text/html"))),
        ("text/html", "<p>café</p>".as_bytes(), Ok(("café", "text/html"))),
        ("text/html", b"<p>\x93caf\xe9\x94</p>", Ok(("“café”", "text/html"))),
        ("text/html; charset=utf-8", b"\xff\xfe<\0p\0>\0x\0", Ok(("x", "text/html"))),
        ("application/xhtml+xml", b"<html><body><p>x</p></body></html>", Ok(("x", "application/xhtml+xml"))),
        ("text/markdown", b"# Beds\r\n\r\n<b>kept</b> \x1b[31m", Ok(("# Beds\n\n<b>kept</b> [31m", "text/markdown"))),
        ("application/ld+json", b"{\"a\": 1}", Ok(("{\"a\": 1}", "application/ld+json"))),
        ("", b" <p>x</p>", Ok(("x", "text/html"))),
        ("", b"a < b", Ok(("a < b", "text/plain"))),
        // The child that reads it is `dr`, which this program is not.
        ("application/pdf", b"%PDF-1.7", Err(without_child())),
        ("text/html", b"%PDF-1.7", Err(without_child())),
        ("image/png", b"x", refused("image/png")),
        ("text/plain", b"a\0b", refused("application/octet-stream")),
        ("text/html", b"<script>x</script>", Err(FetchError::Empty)),
    ] {
        let server = Server::page(answer(200, content_type, body));
        let page = server.fetcher().fetch(&server.url("/")).await;
        let found = page.as_ref().map(|page| (page.text.as_str(), page.content_type.as_str()));
        assert_eq!(found, expected.as_ref().map(|found| *found), "{content_type}: {body:?}");
    }
    let server = Server::page(answer(404, "text/html", "<p>not here</p>"));
    assert_eq!(
        server.fetcher().fetch(&server.url("/")).await.unwrap_err(),
        FetchError::Status { status: 404, retry_after: None }
    );
}

/// A source over fixtures and a site on loopback, with a folder of its own.
struct Web {
    source: WebSource,
    server: Server,
    folder: tempfile::TempDir,
}

fn web() -> Web {
    let server = Server::page(html("<title>Beds</title><p>Valves open at six.</p><p>They close at nine.</p>"));
    let site = server.url("/beds").to_string();
    let hit = |url: &str, snippet: &str| json!({ "url": url, "title": "Beds", "snippet": snippet });
    let hits = json!({ "when do the valves open": [
        hit(&site, "Valves open …"),
        hit(&format!("{site}/?utm_source=x"), "the same"),
        hit("https://www.a.example/1", "Opening valves."), hit("https://a.example/2", "x"), hit("https://a.example/3", "x"),
        hit("https://b.example/", "Something else."),
    ] });
    let folder = tempfile::tempdir().unwrap();
    let source = source(&hits, Some(server.fetcher()), folder.path());
    Web { source, server, folder }
}

fn source(hits: &Value, fetcher: Option<Fetcher>, folder: &std::path::Path) -> WebSource {
    let providers: Vec<Arc<dyn SearchProvider>> = vec![Arc::new(FixtureProvider::read(hits).unwrap())];
    let pages = PageStore::new(folder.join("pages"), folder.join("key"));
    WebSource::new(providers, fetcher.map(Arc::new), pages, Arc::new(ManualClock::at(Moment(7))))
}

fn address(passage: &Passage) -> Outbound {
    assert_eq!(passage.label, Label::Public);
    Outbound::fixed(passage.id.clone())
}

#[tokio::test]
async fn search_gives_each_page_once_and_few_of_one_site() {
    let web = web();
    // A site may have its share of the six passages wanted: three sites, two of each.
    let found = web.source.search(&Outbound::fixed("When do the valves open"), 6).await.unwrap();
    let ids: Vec<_> = found.passages.iter().map(|passage| passage.id.as_str()).collect();
    let site = web.server.url("/beds").to_string();
    assert_eq!(ids, [site.as_str(), "https://www.a.example/1", "https://a.example/2", "https://b.example/"]);
    assert!(found.passages.iter().all(|passage| passage.label == Label::Public));
    assert_eq!(found.support, Support::Strong);
    assert_eq!(web.source.search(&Outbound::fixed("When do the valves open"), 2).await.unwrap().passages.len(), 2);
    let nothing = web.source.search(&Outbound::fixed("price of tea"), 5).await.unwrap();
    assert_eq!((nothing.passages.len(), nothing.support), (0, Support::None));
    assert_eq!(web.server.lines(), [""; 0], "searching fetches nothing");
}

#[tokio::test]
async fn page_is_opened_stored_and_read_again_without_the_network() {
    let web = web();
    let found = web.source.search(&Outbound::fixed("when do the valves open"), 5).await.unwrap();
    assert_eq!(web.source.read(&found.passages[0].place).await, SourceFile::Gone, "a snippet is no page");
    let opened = web.source.open(&address(&found.passages[0])).await.unwrap();
    let page = &opened.passage;
    assert_eq!(page.text, "Valves open at six.\n\nThey close at nine.");
    assert_eq!(web.source.read(&page.place).await, SourceFile::AsIndexed(page.text.clone()));

    let again = source(&json!({}), None, web.folder.path());
    assert_eq!(again.open(&address(&found.passages[0])).await.unwrap(), opened);
    assert_eq!(web.server.lines(), ["GET /robots.txt", "GET /beds"]);
}

#[tokio::test]
async fn page_from_the_future_is_fetched_again() {
    let web = web();
    let store = PageStore::new(web.folder.path().join("pages"), web.folder.path().join("key"));
    let url: WebUrl = web.server.url("/beds").to_string().parse().unwrap();
    let forged = page(url.as_str(), "Valves never open.");
    let forged = WebPage { requested: url.clone(), fetched_at: Moment(253_370_764_800_000), ..forged };
    store.put(&forged).unwrap();
    let found = web.source.search(&Outbound::fixed("when do the valves open"), 1).await.unwrap();
    assert_eq!(found.passages[0].id, url.as_str());
    let opened = web.source.open(&address(&found.passages[0])).await.unwrap();
    assert_eq!(opened.passage.text, "Valves open at six.\n\nThey close at nine.");
}

#[tokio::test]
async fn text_that_is_no_web_address_is_not_opened() {
    let web = web();
    for text in ["file:///etc/passwd", "kb-chunk", ""] {
        let error = web.source.open(&Outbound::fixed(text)).await.unwrap_err();
        assert_eq!(error, SourceError::NoSuchPassage { id: text.into() });
    }
    assert_eq!(web.server.lines(), [""; 0]);
}

#[tokio::test]
async fn place_with_a_hash_that_is_none_is_gone() {
    let web = web();
    for hash in ["../../../etc/passwd", "", "zz"] {
        let place = Place::Web {
            url: "https://a.example/".into(),
            title: "A".into(),
            published: None,
            fetched_at: Some(1),
            content_hash: Some(ContentHash::from_stored(hash)),
        };
        assert_eq!(web.source.read(&place).await, SourceFile::Gone, "{hash}");
    }
}

#[test]
fn place_written_before_there_were_stored_pages_is_still_read() {
    let place: Place =
        serde_json::from_value(json!({ "kind": "web", "url": "u", "title": "t", "fetched_at": null })).unwrap();
    assert!(matches!(place, Place::Web { content_hash: None, .. }));
    assert!(serde_json::to_value(&place).unwrap().get("content_hash").is_none());
}
