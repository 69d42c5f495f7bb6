//! Text in files, pages and search results is data, never an instruction.

use std::collections::BTreeMap;

use dr::base::line::is_invisible;
use dr::render::{ReportFormat, report};
use dr::research::report::Report;
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Value, json};

use super::injections::{HARMLESS, MARK, TEXTS};
use super::{QUESTION, greenhouse, greenhouse_at, models_at};
use crate::common::World;
use crate::reader;
use crate::web_server::{Kind, Setup, WebServer};

const PER_WORLD: usize = 12;

const ASK: [&str; 7] = ["ask", "--json", "--quiet", "--no-deep-research", "--mode", "deep", QUESTION];

/// The actions of a run that untrusted text might influence.
#[derive(Debug, PartialEq)]
struct Deeds {
    routes: Value,
    /// Requests sent to the web.
    asked: Vec<String>,
    /// Model calls by role and tool calls by node.
    calls: BTreeMap<String, Value>,
    evidence: Vec<Value>,
    findings: Value,
    stop_reason: Value,
}

/// Returns a world whose notes contain `texts` in every place that can hold text.
fn notes(texts: &[&str]) -> World {
    let world = greenhouse();
    let first = texts[0].replace(['"', '\\', '\n', '\r'], " ");
    let first: String = first.chars().filter(|letter| !letter.is_control()).collect();
    let paragraphs: String =
        texts.iter().map(|text| format!("{text}\n\n![{text}](pixel.png)\n\n<!-- {text} -->\n\n")).collect();
    let text = format!(
        "---\ntitle: Watering\nsummary: \"{first}\"\n---\n\n# Watering\n\nWe water the greenhouse beds with drip \
             lines at six in the morning.\n\nThe beds of the greenhouse take forty litres of water a day.\n\n\
             ## Weather\n\n{paragraphs}"
    );
    // A file or page with a NUL byte counts as binary and would be skipped.
    world.write("kb/watering.md", &text.replace('\0', ""));
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    world
}

/// Returns a page with `texts` in every place that can hold text.
fn page(texts: &[&str]) -> String {
    let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let places = |text: &&str| {
        let (text, raw) = (safe(text), text);
        format!(
            "<p>{text}</p><img src=\"p.png\" alt=\"{text}\"><div style=\"display:none\">{text}</div>\
             <p hidden>{text}</p><!-- {raw} --><p title=\"{text}\">So much for that.</p>"
        )
    };
    format!(
        "<html><head><title>Greenhouse beds</title><meta name=\"description\" content=\"{}\"></head><body><article>\
         <h1>Greenhouse beds</h1><p>Greenhouse beds that are published take nine litres of water.</p>{}\
         <p>Other greenhouse beds are given water by hand.</p></article></body></html>",
        safe(texts[0]),
        texts.iter().map(places).collect::<String>()
    )
}

/// Starts a server whose search results and pages contain `texts`.
fn outside(texts: &[&str], paths: &[String]) -> WebServer {
    let setup = Setup::new(reader::say).with_snippet(&texts.join(" "));
    paths.iter().fold(setup, |setup, path| setup.with_page(path, &page(texts).replace('\0', ""))).start()
}

/// Asks and returns the actions. Asserts that models see the texts only inside data blocks.
fn deeds(texts: &[&str], paths: &[String]) -> Deeds {
    let server = outside(texts, paths);
    let world = models_at(notes(texts), &server).with_variable("SEARXNG_URL", server.origin());
    let run = world.dr(ASK);
    let report = run.json();
    for request in server.requests() {
        let words = without_data(&request.said());
        assert!(!words.to_lowercase().contains(MARK), "{words}\n{:?}", request.form());
    }
    assert!(server.received().contains(MARK), "the model has read it");
    let mut asked: Vec<_> = server.worked_on().into_iter().filter(|(kind, _)| *kind != Kind::Reply).collect();
    asked.sort_by(|(_, a), (_, b)| a.path.cmp(&b.path));
    let table = |name: &str, field: &str| {
        let rows = report["usage"][name].as_object().unwrap().clone();
        rows.into_iter().map(|(key, row)| (key, row[field].clone())).collect::<Vec<_>>()
    };
    let shown = world.dr(["show", "--json", "--events"]).succeeded().json();
    let routes = shown["events"].as_array().unwrap().iter();
    let routes = routes.filter_map(|record| Some(json!([record["event"]["node"], record["event"].get("route")?])));
    let mut routes: Vec<_> = routes.collect();
    routes.sort_by_key(Value::to_string);
    Deeds {
        routes: routes.into(),
        asked: asked.into_iter().map(|(kind, request)| format!("{kind:?} {}", request.path)).collect(),
        calls: table("by_role", "calls").into_iter().chain(table("by_node", "tool_calls")).collect(),
        evidence: report["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .map(|quote| json!([quote["id"], quote["quote"]]))
            .collect(),
        findings: report["findings"].as_array().unwrap().iter().map(|finding| finding["evidence"].clone()).collect(),
        stop_reason: json!([report["stop_reason"], run.exit]),
    }
}

/// Returns a prompt without its data blocks.
fn without_data(words: &str) -> String {
    let mut rest = words;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("<data id=\"") {
        kept.push_str(before);
        rest = after.split_once("\n</data>").map_or("", |(_, rest)| rest);
    }
    kept + rest
}

#[test]
fn text_of_files_pages_and_results_does_not_change_the_actions_of_a_run() {
    let paths: Vec<String> = deeds(&[HARMLESS], &[])
        .asked
        .iter()
        .filter_map(|asked| Some(asked.strip_prefix("Page ")?.to_owned()))
        .collect();
    assert!(!paths.is_empty());
    let expected = deeds(&[HARMLESS; PER_WORLD], &paths);
    assert!(expected.evidence.len() >= 3, "{expected:#?}");
    for texts in TEXTS.chunks(PER_WORLD) {
        assert_eq!(deeds(texts, &paths), expected, "{texts:#?}");
    }
}

/// Returns a report with `text` in every field that may hold untrusted text.
fn hostile_report(report: &Value, text: &str) -> Report {
    let mut report = report.clone();
    let evidence = &report["evidence"][0]["id"].clone();
    for key in ["answer", "question"] {
        report[key] = text.into();
    }
    for key in ["open_questions", "limitations", "contradictions"] {
        report[key] = json!([text]);
    }
    report["findings"] = json!([{ "text": text, "evidence": [evidence], "aspect": null }]);
    report["sections"] = json!([]);
    for quote in report["evidence"].as_array_mut().unwrap() {
        quote["quote"] = text.into();
        let source = quote["source"].as_object_mut().unwrap();
        source.insert("title".into(), text.into());
        if source.contains_key("path") {
            source.insert("path".into(), text.into());
            source.insert("heading_path".into(), json!([text]));
        } else {
            source.insert("url".into(), text.into());
        }
    }
    for node in report["tree"]["nodes"].as_array_mut().unwrap() {
        node["summary"] = text.into();
        node["why"] = text.into();
    }
    for passage in report["passages"].as_array_mut().unwrap() {
        passage["snippet"] = text.into();
    }
    report["reported"] = json!([{ "text": text, "url": text, "title": text }]);
    serde_json::from_value(report).unwrap()
}

#[test]
fn only_web_addresses_are_rendered_as_links_and_control_characters_are_removed() {
    let (_server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    let known = world.dr(["ask", "--json", "--quiet", "--mode", "deep", QUESTION]).succeeded().json();
    for text in TEXTS {
        let hostile = hostile_report(&known, text);
        for format in [ReportFormat::Markdown, ReportFormat::Note, ReportFormat::Html, ReportFormat::Json] {
            let rendered = report(&hostile, format).unwrap();
            let odd = rendered.chars().find(|letter| letter.is_control() && *letter != '\n');
            assert_eq!(odd, None, "{format:?} of {text:?}:\n{rendered}");
            let hidden = rendered.chars().find(|letter| is_invisible(*letter));
            assert_eq!(hidden, None, "{format:?} of {text:?}:\n{rendered}");
            match format {
                ReportFormat::Markdown | ReportFormat::Note => assert_links_lead_to_the_web(&rendered),
                ReportFormat::Html => assert_page_is_tame(&rendered),
                ReportFormat::Json => {}
            }
        }
    }
}

fn assert_links_lead_to_the_web(markdown: &str) {
    let body =
        markdown.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).map_or(markdown, |(_, body)| body);
    for event in Parser::new_ext(body, Options::all()) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => {
                let is_web =
                    dest_url.starts_with("http://") || dest_url.starts_with("https://") || dest_url.starts_with('#');
                assert!(is_web && !dest_url.contains("evil"), "{dest_url} in:\n{markdown}");
            }
            Event::Start(Tag::Image { .. } | Tag::HtmlBlock) | Event::Html(_) | Event::InlineHtml(_) => {
                panic!("{event:?} in:\n{markdown}")
            }
            _ => {}
        }
    }
}

fn assert_page_is_tame(html: &str) {
    let (_, body) = html.split_once("<body").unwrap();
    let lower = body.to_lowercase().replace("&#x2f;", "/");
    for tag in ["<script", "<img", "<iframe", "<svg", "<style", "<a href=\"javascript", "<system", "<data"] {
        assert!(!lower.contains(tag), "{tag} in:\n{html}");
    }
    for target in lower.split("href=\"").skip(1) {
        let is_web = ["http://", "https://", "#"].iter().any(|start| target.starts_with(start));
        assert!(is_web, "{target}");
    }
}
