//! Renders a report as one self-contained HTML page: no scripts, fonts or network. A server's page embeds only the
//! report.
//!
//! The template escapes everything; this file builds its data. As a second barrier, a content security policy in the
//! page forbids loading and running anything.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::RenderError;
use super::citation::{self, Numbers};
use super::figure::{self, UsageRow};
use super::json::escaped;
use super::prose::{self, Block, Span, uncited};
use super::tree::{self, TreeStyle};
use crate::base::line::{cut, one_line};
use crate::research::evidence::Evidence;
use crate::research::node::NodeStatus;
use crate::research::report::Report;
use crate::source::Place;

pub(crate) const STYLE: &str = include_str!("report.css");

/// The templates by name. The extension `.html` turns on escaping.
const TEMPLATES: [(&str, &str); 3] = [
    ("report.html", include_str!("report.html")),
    ("report_body.html", include_str!("report_body.html")),
    ("report.css", STYLE),
];

/// Characters of a quote in the preview of a citation; the list of sources has the whole quote.
const PREVIEW_CHARS: usize = 400;

/// Returns the report as an HTML page.
///
/// # Errors
///
/// Returns an error if the template refers to a field that is missing. Tests rule this out for all parts of a report.
pub(crate) fn report(report: &Report) -> Result<String, RenderError> {
    rendered("report.html", report)
}

/// Returns the report as the contents of a page with [`STYLE`].
pub(crate) fn body(report: &Report) -> Result<String, RenderError> {
    rendered("report_body.html", report)
}

fn rendered(name: &str, report: &Report) -> Result<String, RenderError> {
    let mut environment = Environment::new();
    // A field that the template misspells is an error, not an empty place in a report.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    for (name, text) in TEMPLATES {
        environment.add_template(name, text)?;
    }
    Ok(environment.get_template(name)?.render(Serde(ReportHtml::of(report)))?)
}

/// Data of the template.
#[derive(Serialize)]
struct ReportHtml {
    question: String,
    refusal: Option<Vec<Span>>,
    reservation: Option<String>,
    answer: Vec<Block>,
    findings: Vec<Vec<Span>>,
    sections: Vec<SectionHtml>,
    output: Option<String>,
    lists: Vec<ListHtml>,
    confidence: String,
    checks: String,
    course: Option<Course>,
    sources: Vec<SourceHtml>,
    documents: Vec<DocumentHtml>,
    passages: Vec<FurtherHtml>,
}

#[derive(Serialize)]
struct SectionHtml {
    title: String,
    blocks: Vec<Block>,
}

#[derive(Serialize)]
struct ListHtml {
    title: &'static str,
    items: Vec<Vec<Span>>,
}

impl ListHtml {
    fn of(title: &'static str, items: &[String], number: prose::Number<'_>) -> Self {
        Self { title, items: items.iter().map(|item| prose::line(item, number)).collect() }
    }
}

#[derive(Serialize)]
struct Course {
    summary: Vec<Span>,
    run_id: Option<String>,
    nodes: Vec<NodeHtml>,
    columns: [&'static str; 8],
    usage: Vec<UsageRow>,
}

#[derive(Serialize)]
struct NodeHtml {
    id: String,
    question: String,
    status: NodeStatus,
    mark: &'static str,
    confidence: Option<String>,
    depends_on: String,
    /// Reason for a failed or blocked node; otherwise empty.
    why: String,
    has_children: bool,
    /// Number of nested lists that the template closes after this node.
    closes: usize,
}

#[derive(Serialize)]
struct SourceHtml {
    /// Position of the quote, which links refer to.
    number: usize,
    id: String,
    label: String,
    place: PlaceHtml,
    /// Its location in the document.
    part: citation::Locator,
    note: Option<&'static str>,
    quote: String,
    /// Beginning of the quote, see [`PREVIEW_CHARS`].
    preview: String,
}

/// A document with the positions of its quotes.
#[derive(Serialize)]
struct DocumentHtml {
    number: usize,
    place: PlaceHtml,
    quotes: Vec<usize>,
}

#[derive(Serialize)]
struct FurtherHtml {
    place: PlaceHtml,
    snippet: Vec<Span>,
}

#[derive(Serialize)]
struct PlaceHtml {
    at: String,
    names: String,
    /// Address, if it is safe as a link.
    link: Option<String>,
    days: Option<String>,
}

impl ReportHtml {
    fn of(report: &Report) -> Self {
        let numbers = Numbers::of(report);
        let number = |id: &_| numbers.get(id);
        let (is_refusal, is_run) = (report.is_refusal(), figure::is_run(report));
        let mut limitations = report.limitations.as_slice();
        let refusal = is_refusal.then(|| match limitations.split_first() {
            Some((why, rest)) => {
                limitations = rest;
                plain(why)
            }
            None => plain("No relevant evidence was found."),
        });
        let reported = citation::reported(report);
        // The only open question of a refusal is the question itself.
        let open_questions = if is_refusal { &[] } else { report.open_questions.as_slice() };
        Self {
            question: one_line(report.question.as_str()),
            refusal,
            // A refusal gives its own reason.
            reservation: figure::reservation(report).filter(|_| !is_refusal),
            answer: prose::blocks(&report.answer, &number),
            // As in Markdown: sections repeat the findings.
            findings: if is_run && report.sections.is_empty() {
                report.findings.iter().map(|finding| prose::finding(finding, &number)).collect()
            } else {
                Vec::new()
            },
            sections: report.sections.iter().map(|section| SectionHtml::of(section, &number)).collect(),
            output: report.output.as_ref().map(|output| escaped(&format!("{output:#}"))),
            lists: [
                ListHtml::of(citation::UNCHECKED, &reported, &uncited),
                ListHtml::of("Contradictions", &report.contradictions, &number),
                ListHtml::of("Open questions", open_questions, &uncited),
                ListHtml::of("Limitations", limitations, &uncited),
            ]
            .into_iter()
            .filter(|list| !list.items.is_empty())
            .collect(),
            confidence: if is_run {
                format!("{:.2} of 1", report.confidence)
            } else {
                format!("Support: {}", figure::support(report))
            },
            checks: citation::checks(report),
            course: is_run.then(|| Course::of(report)),
            sources: report
                .evidence
                .iter()
                .zip(1..)
                .map(|(evidence, number)| {
                    let label = numbers.get(&evidence.id).map(|mark| mark.to_string()).unwrap_or_default();
                    SourceHtml::of(evidence, number, label)
                })
                .collect(),
            documents: {
                let sources = (1..).zip(citation::sources(report));
                sources.filter_map(|(number, quotes)| DocumentHtml::of(&quotes, number)).collect()
            },
            passages: report
                .passages
                .iter()
                .map(|passage| FurtherHtml {
                    place: PlaceHtml::of(&passage.source),
                    snippet: prose::snippet(&passage.snippet),
                })
                .collect(),
        }
    }
}

impl SectionHtml {
    fn of(section: &crate::research::report::Section, number: prose::Number<'_>) -> Self {
        Self { title: one_line(&section.title), blocks: prose::blocks(&section.text, number) }
    }
}

impl Course {
    fn of(report: &Report) -> Self {
        let rows = tree::rows(&report.tree);
        // The depth of the next node. After the last one, every open list is closed.
        let depths: Vec<_> = rows.iter().map(|row| row.depth).skip(1).chain([0]).collect();
        let nodes = rows.iter().zip(depths).map(|(row, next)| NodeHtml::of(row, next)).collect();
        Self {
            summary: plain(&figure::course(report)),
            run_id: report.run_id.as_deref().map(one_line),
            nodes,
            columns: figure::USAGE_COLUMNS,
            usage: figure::usage_rows(report),
        }
    }
}

impl NodeHtml {
    /// Returns the data of a node followed by one at depth `next`.
    fn of(row: &tree::Row<'_>, next: usize) -> Self {
        let node = row.node;
        let is_lost = matches!(node.status, NodeStatus::Failed | NodeStatus::Blocked);
        Self {
            id: node.id.to_string(),
            question: one_line(node.question.as_str()),
            status: node.status,
            mark: TreeStyle::default().mark(node.status),
            confidence: (node.status == NodeStatus::Done && node.confidence > 0.0)
                .then(|| format!("{:.2}", node.confidence)),
            depends_on: tree::names(&node.depends_on),
            why: if is_lost { one_line(&node.summary) } else { String::new() },
            has_children: next > row.depth,
            closes: row.depth.saturating_sub(next),
        }
    }
}

impl SourceHtml {
    fn of(evidence: &Evidence, number: usize, label: String) -> Self {
        let quote = citation::quoted(evidence);
        let preview = cut(&quote, PREVIEW_CHARS);
        let (place, part) = (PlaceHtml::of(&evidence.source), citation::Locator::of(evidence));
        let id = evidence.id.to_string();
        Self { number, id, label, place, part, note: citation::note(evidence), quote, preview }
    }
}

impl DocumentHtml {
    /// Returns `None` without quotes.
    fn of(quotes: &[(usize, &Evidence)], number: usize) -> Option<Self> {
        let (_, first) = quotes.first()?;
        let place = PlaceHtml::of(&first.source);
        let place = match (&first.source, quotes.len()) {
            (Place::Kb { path, title, .. }, 2..) => PlaceHtml { at: one_line(path), names: one_line(title), ..place },
            (Place::Kb { .. } | Place::Web { .. } | Place::Mcp { .. }, _) => place,
        };
        Some(Self { number, place, quotes: quotes.iter().map(|(at, _)| *at).collect() })
    }
}

impl PlaceHtml {
    fn of(place: &Place) -> Self {
        let link = match place {
            Place::Kb { .. } | Place::Mcp { .. } => None,
            Place::Web { url, .. } => citation::safe_url(url).map(str::to_owned),
        };
        Self { at: one_line(&place.beside_names()), names: place.names(), link, days: place.days() }
    }
}

fn plain(text: &str) -> Vec<Span> {
    prose::line(text, &uncited)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use proptest::prelude::*;

    fn page(report: &Report) -> String {
        super::report(report).unwrap()
    }

    /// Returns the tags of a page in order, without attributes: `a`, `/a`.
    fn tags(page: &str) -> Vec<&str> {
        page.match_indices('<')
            .map(|(at, _)| page[at + 1..].split(|letter: char| " >\n".contains(letter)).next().unwrap_or(""))
            .collect()
    }

    /// Asserts that every opened tag is closed, in order.
    fn assert_nested(page: &str) {
        let mut open = Vec::new();
        for tag in tags(page) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{page}"),
                None if ["!doctype", "meta", "br"].contains(&tag) => {}
                None => open.push(tag),
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    #[test]
    fn quotes_of_one_document_stand_together_under_its_number() {
        let mut report = sample::run();
        let more = Evidence { id: "n2e9".parse().unwrap(), quote: "More.".into(), ..report.evidence[0].clone() };
        report.evidence.push(more);
        let page = page(&report);
        assert_nested(&page);
        let sources = page.split_once("<h2>Sources</h2>").unwrap().1;
        let place = |text: &str| sources.find(text).unwrap_or_else(|| panic!("no {text} in {sources}"));
        let at = [">1</span>", "<code>battery.md</code>", ">1a</span>", ">1b</span>", ">2</span>"].map(place);
        assert!(at.is_sorted(), "{at:?} {sources}");
        assert_eq!(sources.matches("<code>battery.md</code>").count(), 1, "{sources}");
    }

    #[test]
    fn page_of_a_run_is_as_reviewed() {
        let page = page(&sample::run());
        assert_nested(&page);
        // Its style is read in its own file.
        let (head, rest) = page.split_once("<style>").unwrap();
        let (_, body) = rest.split_once("</style>").unwrap();
        insta::assert_snapshot!(format!("{head}<style></style>{body}"));
    }

    #[test]
    fn page_of_one_search_has_no_tree_and_no_costs() {
        let page = page(&sample::answer());
        assert_nested(&page);
        assert!(!page.contains("How it was researched") && !page.contains("<table"), "{page}");
        assert!(page.contains("Lithium cells do not leak."), "{page}");
    }

    #[test]
    fn refusal_is_a_page_without_findings() {
        let refused = Report { evidence: Vec::new(), findings: Vec::new(), answer: String::new(), ..sample::run() };
        let page = page(&refused);
        assert_nested(&page);
        assert!(page.contains("No answer.") && page.contains("Nearest passages"), "{page}");
        assert!(!page.contains("Key findings") && !page.contains("Confidence"), "{page}");
    }

    #[test]
    fn page_may_load_and_run_nothing() {
        let page = page(&sample::run());
        assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'"), "{page}");
        for tag in ["script", "link", "img", "iframe", "object", "embed", "form", "base"] {
            assert!(!tags(&page).contains(&tag), "{tag}");
        }
        let templates = TEMPLATES.map(|(_, text)| text).concat();
        for word in ["| safe", "|safe", "autoescape", "url(", "@import"] {
            assert!(!templates.contains(word), "everything is escaped, and nothing is loaded: {word}");
        }
    }

    #[test]
    fn hostile_text_adds_no_tag_and_no_link() {
        let hostile = "</title></style><script>alert('x')</script> \" onmouseover=\"x' javascript:alert(1) ]]> --> \
                       {{ question }} {% raw %} <a href=javascript:x>y</a> [n2e1](javascript:alert(1))";
        let page = page(&sample::all_saying(hostile));
        assert_nested(&page);
        let allowed = [
            "!doctype", "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "h3", "p",
            "ul", "ol", "li", "a", "sup", "span", "strong", "em", "code", "pre", "table", "thead", "tbody", "tr", "th",
            "td", "section", "blockquote", "footer", "div",
        ];
        for tag in tags(&page) {
            assert!(allowed.contains(&tag.trim_start_matches('/')), "{tag} in {page}");
        }
        assert!(links(&page).iter().all(|link| link.starts_with('#')), "{:?}", links(&page));
        assert!(!page.contains("\" onmouseover") && page.contains("&lt;script&gt;"), "{page}");
    }

    fn links(page: &str) -> Vec<&str> {
        page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn citation_leads_to_its_source_and_carries_its_quote() {
        let page = page(&sample::run());
        for link in links(&page).into_iter().filter_map(|link| link.strip_prefix('#')) {
            assert!(page.contains(&format!("id=\"{link}\"")), "{link}");
        }
        assert!(links(&page).contains(&"#source-1"));
    }

    proptest! {
        #[test]
        fn page_of_any_text_is_nested_and_leads_nowhere_else(text in r#"a(\[n2e1\]|```|<b>|</p>|"|'|&|[-*_`\[\]()<>|#:1 \n]){0,40}"#) {
            let page = page(&sample::all_saying(&text));
            assert_nested(&page);
            prop_assert!(links(&page).iter().all(|link| link.starts_with('#')));
        }
    }
}
