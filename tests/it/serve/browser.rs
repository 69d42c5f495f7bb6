use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PATIENCE, serve};
use crate::common::{Running, block_on};
use crate::model_server::ModelServer;
use crate::outside::greenhouse;
use crate::reader;

/// Folder for screenshots, to look at.
const SCREENSHOTS: &str = "DR_SCREENSHOTS";

/// Returns the texts of the page whose contrast is below WCAG AA, and how many texts there are.
const CONTRAST: &str = include_str!("contrast.js");

/// Holds back calls of models while it is closed.
#[derive(Default)]
struct CallGate {
    is_closed: Mutex<bool>,
    moved: Condvar,
}

impl CallGate {
    fn set(&self, closed: bool) {
        *self.is_closed.lock().unwrap() = closed;
        self.moved.notify_all();
    }

    fn pass(&self) {
        drop(self.moved.wait_timeout_while(self.is_closed.lock().unwrap(), PATIENCE, |closed| *closed).unwrap());
    }
}

struct Driver {
    _child: Running,
    url: String,
}

impl Driver {
    /// Starts it; `None` if it is not installed.
    fn start() -> Option<Self> {
        let mut driver = Command::new("chromedriver");
        let child = driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut child = Running(child);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut ports = lines.map_while(Result::ok).filter_map(|line| {
            let port = line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned();
            Some(port)
        });
        let port = ports.next().expect("ChromeDriver names its port");
        Some(Self { _child: child, url: format!("http://127.0.0.1:{port}") })
    }

    /// Opens a browser with an empty profile; an error says why it does not start on this machine.
    fn browser(&self, profile: &Path) -> Result<Browser, String> {
        let profile = format!("--user-data-dir={}", profile.display());
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1280,900",
            &profile,
        ];
        let capabilities = json!({ "alwaysMatch": { "goog:chromeOptions": { "args": args } } });
        // The client would look for TLS otherwise, which the driver does not have.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut browser = Browser { session: format!("{}/session", self.url), client: reqwest::Client::new() };
        let opened = browser.told("", &json!({ "capabilities": capabilities }));
        let id = opened["sessionId"].as_str().ok_or_else(|| opened.to_string())?;
        browser.session = format!("{}/{id}", browser.session);
        Ok(browser)
    }
}

/// A browser, driven by the commands of W3C `WebDriver`. A client library would turn on features of crates that `dr` uses,
/// and every crate would be built twice.
struct Browser {
    session: String,
    client: reqwest::Client,
}

impl Browser {
    fn command(&self, path: &str, body: &Value) -> Value {
        let reply = self.told(path, body);
        assert!(reply["error"].is_null(), "{path} {body}: {reply}");
        reply
    }

    fn told(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.session)).json(body);
        let mut reply: Value = block_on(async { request.send().await.unwrap().json().await.unwrap() });
        reply["value"].take()
    }

    fn run(&self, script: &str, args: &[&str]) -> Value {
        self.command("/execute/sync", &json!({ "script": script, "args": args }))
    }

    fn open(&self, address: &str) {
        self.command("/url", &json!({ "url": address }));
    }

    /// Waits until a script returns something.
    fn until(&self, script: &str, args: &[&str]) {
        let started = Instant::now();
        while !self.run(script, args).as_bool().unwrap_or_default() {
            let page = || self.run("return document.body.innerText", &[]);
            assert!(started.elapsed() < PATIENCE, "{args:?} in {}", page());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn sees(&self, selector: &str) {
        self.until("return document.querySelector(arguments[0]) !== null", &[selector]);
    }

    /// Waits until an element has a text.
    fn reads(&self, selector: &str, text: &str) {
        let script =
            "return [...document.querySelectorAll(arguments[0])].some((e) => e.textContent.includes(arguments[1]))";
        self.until(script, &[selector, text]);
    }

    /// Clicks by script, since an element below the fold cannot be clicked.
    fn click(&self, selector: &str) {
        self.sees(selector);
        self.run("document.querySelector(arguments[0]).click()", &[selector]);
    }

    /// Types into an element as a user does.
    fn types(&self, selector: &str, text: &str) {
        self.sees(selector);
        let element = self.command("/element", &json!({ "using": "css selector", "value": selector }));
        let id = element.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        self.command(&format!("/element/{id}/value"), &json!({ "text": text }));
    }

    /// Checks the contrast of all texts in light and dark, and keeps pictures of the page for a person to look at.
    fn look(&self, name: &str) {
        for scheme in ["dark", "light"] {
            let feature = |name: &str, value: &str| json!({ "name": name, "value": value });
            // A mark that pulses has another contrast at each moment.
            let features = [feature("prefers-color-scheme", scheme), feature("prefers-reduced-motion", "reduce")];
            let emulated = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
            self.command("/goog/cdp/execute", &emulated);
            let seen = self.run(CONTRAST, &[]);
            assert!(seen["texts"].as_u64().unwrap() > 5, "{name}: {seen}");
            assert_eq!(seen["scheme"], scheme);
            assert_eq!(seen["faint"], json!([]), "{name} in {scheme}");
        }
        self.picture(name);
    }

    /// Keeps pictures of the page at two widths.
    fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os(SCREENSHOTS) else { return };
        for width in [1280, 390] {
            self.command("/window/rect", &json!({ "width": width, "height": 900 }));
            std::thread::sleep(Duration::from_millis(300));
            let get = self.client.get(format!("{}/screenshot", self.session));
            let reply: Value = block_on(async { get.send().await.unwrap().json().await.unwrap() });
            std::fs::write(Path::new(&folder).join(format!("{name}-{width}.base64")), reply["value"].as_str().unwrap())
                .unwrap();
        }
        self.command("/window/rect", &json!({ "width": 1280, "height": 900 }));
    }
}

impl Drop for Browser {
    /// Ends Chromium, which would outlive its driver.
    fn drop(&mut self) {
        let end = self.client.delete(&self.session).timeout(Duration::from_secs(10));
        let _ = block_on(async { end.send().await });
    }
}

#[test]
fn question_is_asked_watched_stopped_resumed_raised_compared_and_read_in_a_browser() {
    let Some(driver) = Driver::start() else {
        eprintln!("skipped: ChromeDriver is not installed");
        return;
    };
    let gate = Arc::new(CallGate::default());
    let (kept, is_dear) = (Arc::clone(&gate), Arc::new(AtomicBool::new(false)));
    let dear = Arc::clone(&is_dear);
    let models = ModelServer::start(move |request| {
        let is_step = request.form() == Some("step");
        if is_step {
            kept.pass();
        }
        let tokens = if is_step && dear.load(Ordering::SeqCst) { 59_500 } else { 500 };
        request.reply(&reader::say(request), tokens, 80)
    });
    let world = greenhouse();
    world.write(
        "kb/<img src=x onerror=alert(1)>.md",
        "# <script>alert(1)</script>\n\nThe zebra of the greenhouse is <b>striped</b>. It sleeps in its [stable](stable.md) \
         and never in the [barn](barn.md).\n",
    );
    world.write("kb/stable.md", "# Stable\n\nHay is kept dry there.\n");
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    let world = world.with_variable("OPENAI_BASE_URL", models.url()).with_variable("OPENAI_API_KEY", "sk-test");
    let world = world.with_variable("DR_MODEL", "fixture").with_variable("DR_MAX_COST", "inf");
    let page = serve(&world);
    let profile = tempfile::tempdir().unwrap();
    let eyes = match driver.browser(profile.path()) {
        Ok(eyes) => eyes,
        Err(reason) => {
            eprintln!("skipped: Chromium does not start: {reason}");
            return;
        }
    };
    // As `dr serve --open` does.
    let leads = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={}\">", page.address());
    world.write("open.html", &leads);
    eyes.open(&format!("file://{}", world.path("open.html").display()));
    eyes.sees("#question");
    let address = eyes.run("return location.href", &[]).to_string();
    assert!(!address.contains(&page.token), "the token leaves the address: {address}");
    eyes.look("ask");

    // A plan is edited before anything else is spent.
    eyes.types("#question", "How do we water the greenhouse beds, and what is <script>alert(1)</script>?");
    eyes.click("#plan");
    eyes.reads("#estimate", "tokens");
    eyes.look("plan");
    eyes.types("#node-0", " Please.");
    gate.set(true);
    eyes.click("#run-plan");

    // It is watched, reloaded in the middle, stopped and resumed.
    eyes.sees(".tree .running");
    eyes.reads(".tree .doing", "choosing what to search and read, step 1");
    eyes.look("watch");
    eyes.command("/refresh", &json!({}));
    eyes.sees(".tree .running");
    eyes.reads("h1", "<script>alert(1)</script>");
    eyes.click("#stop");
    eyes.reads("#state", "stopped");
    gate.set(false);
    eyes.click("#resume");
    eyes.reads("#state", "ended");

    // The report is read, and a quote in its document.
    eyes.sees(".report .cite a");
    eyes.look("report");
    eyes.click(".report .cite a");
    eyes.sees("#reader[open] mark");
    eyes.reads("#reader-text mark", "greenhouse");
    eyes.look("quote");
    eyes.click("#reader-close");

    searches_and_follows_a_link(&eyes, page.port);

    // A run that a limit ended continues when its limits are raised.
    is_dear.store(true, Ordering::SeqCst);
    eyes.open(&format!("http://127.0.0.1:{}/#/ask", page.port));
    eyes.types("#question", "How many litres of water do the beds of the greenhouse take?");
    eyes.run("document.querySelector('#tokens').value = '60000'", &[]);
    eyes.click("#ask");
    eyes.reads("h1 + p", "stopped tokens exceeded");
    eyes.sees(".report .cite a");
    eyes.look("limit");
    is_dear.store(false, Ordering::SeqCst);
    eyes.click("#raise");
    eyes.reads("h1 + p", "ended complete");

    eyes.open(&format!("http://127.0.0.1:{}/#/runs", page.port));
    eyes.reads(".runs", "How do we water the greenhouse beds");
    eyes.reads(".runs", "How many litres");
    eyes.look("runs");
    // The newest and the oldest: between them is the run by rules that answered in the meantime.
    eyes.run("for (const at of [0, -1]) [...document.querySelectorAll('.runs [type=checkbox]')].at(at).click()", &[]);
    eyes.click("#compare:enabled");
    eyes.until("return document.querySelectorAll('.compare > section .report .cite').length > 1", &[]);
    let lines = eyes.run("return [...document.querySelectorAll('.compare .quiet')].map((e) => e.textContent)", &[]);
    let counts: Vec<_> = lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(counts.len(), 2, "{counts:?}");
    for line in counts {
        let (number, _) = line.split_once(" sub-question").unwrap_or_else(|| panic!("{line}"));
        let number = number.rsplit(' ').next().unwrap();
        assert_eq!(line.contains(" sub-question ·"), number == "1", "{line}");
    }
    eyes.look("compare");
}

/// Searches as one types, for a document that would like to run a script, and opens the notes linked with it.
fn searches_and_follows_a_link(eyes: &Browser, port: u16) {
    eyes.open(&format!("http://127.0.0.1:{port}/#/search"));
    eyes.types("#q", "zebra");
    eyes.reads(".hits mark", "zebra");
    eyes.look("search");
    eyes.click(".hits h3 button");
    eyes.reads("#reader-text mark", "striped");
    eyes.reads("#reader-text", "<b>striped</b>");
    eyes.reads("#reader-links summary", "links to 1 note, 1 broken link");
    eyes.click("#reader-links summary");
    eyes.reads("#reader-links", "barn.md");
    eyes.look("links");
    eyes.click("#reader-links button");
    eyes.reads("#reader-text", "Hay is kept dry");
    eyes.reads("#reader-links", ".md:3");
    eyes.click("#reader-back");
    eyes.reads("#reader-text mark", "striped");
    eyes.click("#reader-close");
    // An alert, which a script of the document would show, fails every command.
    let made = "return document.querySelectorAll('#view script, #reader script, #view img, #reader img').length";
    assert_eq!(eyes.run(made, &[]), json!(0));
}
