//! Writes the answer: a model drafts it with citations by id, and code enforces that every id belongs to a checked
//! quote.
//!
//! A short answer is one call. A long one is outlined, its sections are written in parallel, and a last call writes the
//! summary from them. A reply that is well-formed but has no substance (a placeholder, no citation, another topic) is
//! refused like one that breaks its schema: it is repaired once and then written anew. If that fails too, the answer is
//! assembled from the branch reports.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::assemble::draft_by_rules;
use super::branch::{Branch, Finding};
use super::claim::{UNSUPPORTED, Uncited, mark_unsupported, subject_of, without_lookalikes};
use super::compress::{FindingDraft, confidence, output_prompt};
use super::cut::pieces;
use super::evidence::{Evidence, EvidenceId, origins};
use super::memory::{Memory, cited, claims_text};
use super::node::{Node, NodeId, Tree};
use super::planner::in_words;
use super::prompt::{Template, ends_run, failure, fitted, room, shorten_longest, size};
use super::question::{Brief, Mode};
use super::report::{Draft, Section, marks, quotes_of, strike};
use super::verdict::{Verdict, left_open};
use crate::base::line::{bulleted_item, counted, one_line};
use crate::base::step::Step;
use crate::base::word::{WordSplitter, count_words, find_words, has_digit};
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Role};
use crate::llm::structured::{structured_checked, structured_value};

/// Maximum number of findings of a short answer; with more, the answer is written in sections.
const SHORT_FINDINGS: usize = 24;

/// Maximum number of sections of a long answer. Each is a separate call, so this also bounds the cost.
const MAX_SECTIONS: usize = 8;

/// Tokens of the prompt of a section besides findings and quotes.
const SECTION_RULES: u64 = 1_000;

/// Number of words shared by all sections of an answer, and bounds for one section. A section with few quotes gets
/// fewer.
const ALL_WORDS: usize = 1_200;
const SECTION_WORDS: std::ops::RangeInclusive<usize> = 120..=350;
const WORDS_PER_QUOTE: usize = 8;

/// Tokens of the quotes that no section cites but the summary is shown: a contradiction may need them.
const OTHER_QUOTES: u64 = 2_000;

/// Tokens of all sections in the prompt of the summary, with their citations: twice the words they may have.
const ALL_TOKENS: u64 = 2 * ALL_WORDS as u64;

/// Share of common words from which one open question repeats another.
const SAME_QUESTION: f32 = 0.75;

/// Minimum length of an answer in words, without citations.
const MIN_WORDS: usize = 4;

/// Minimum share of an answer's key words that must occur in findings or quotes. Low on purpose: a paraphrase shares
/// few words with its sources, but an answer to another question shares almost none.
const MIN_SHARED: f32 = 0.15;

/// Share of the key words of an opening line that must occur in the claims it sums up.
const SUMMED_UP_SHARE: f32 = 0.6;

/// Phrases that mark an unfinished text.
const PLACEHOLDERS: [&str; 4] = ["lorem ipsum", "placeholder", "your answer here", "insert answer"];

/// Marks of an unfinished text. Only in capitals: `todo` is a common word of Spanish and Portuguese.
const PLACEHOLDER_MARKS: [&str; 2] = ["TODO", "TBD"];

/// Input of [`draft`].
#[derive(Clone)]
pub(crate) struct WriterInput<'a> {
    /// Question and aspects.
    pub(crate) brief: &'a Brief,
    /// All nodes.
    pub(crate) tree: &'a Tree,
    /// Results of the nodes that have one.
    pub(crate) branches: &'a BTreeMap<NodeId, Branch>,
    /// The planner's reasons, one per plan.
    pub(crate) reasons: &'a [String],
    /// Global and group summaries.
    pub(crate) memory: &'a Memory,
    /// Verdicts of earlier rounds, in order.
    pub(crate) verdicts: &'a [Verdict],
    /// Draft of the round before.
    pub(crate) before: Option<&'a Draft>,
    /// Most relevant quotes, best first.
    pub(crate) ledger: Vec<&'a Evidence>,
    /// Ranks the quotes of a section whose quotes do not all fit.
    pub(crate) nearest: &'a dyn Nearest,
    /// Whether this draft is the report, whatever it lacks: no round follows.
    pub(crate) is_last: bool,
    /// Called with each section of a long answer, in order, after its citations were checked.
    pub(crate) on_section: &'a (dyn Fn(&Section) + Send + Sync),
}

/// Ranks the quotes of nodes by their similarity to a text.
pub(crate) trait Nearest: Send + Sync {
    /// Returns those that are known to be similar, most similar first.
    fn nearest<'a>(&'a self, text: &'a str, nodes: &'a [NodeId]) -> BoxFuture<'a, Vec<EvidenceId>>;
}

// The doc comments of the types that derive `JsonSchema` are sent as schema descriptions and are part of the request
// hash: changing one makes `dr resume` repeat calls recorded by an older version.
/// A short answer, as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WriteDraft {
    #[serde(flatten)]
    said: SummaryDraft,
    /// The key claims.
    findings: Vec<FindingDraft>,
}

/// An answer, as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SummaryDraft {
    /// The answer, with ids in brackets.
    answer: String,
    /// Where sources disagree.
    #[serde(default)]
    contradictions: Vec<String>,
    /// What is not answered.
    #[serde(default)]
    open_questions: Vec<String>,
    /// What keeps the answer from being better.
    #[serde(default)]
    limitations: Vec<String>,
    /// From 0 to 1.
    confidence: f32,
}

/// The headings of a long answer, as a model says them.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OutlineDraft {
    /// In the order a reader needs them.
    sections: Vec<HeadingDraft>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct HeadingDraft {
    /// A short title.
    title: String,
    /// Ids of the nodes it is written from.
    nodes: Vec<String>,
}

/// A section, as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SectionDraft {
    /// Its text, with ids in brackets.
    text: String,
}

/// A text and its id, as prompts list them.
#[derive(Clone, Debug, Serialize)]
struct PromptText {
    id: String,
    text: String,
}

/// Parts of a prompt that [`Writer::fitted`] may shorten.
#[derive(Clone, Debug, Default)]
struct WriterParts {
    findings: String,
    summary: String,
    groups: BTreeMap<String, String>,
    sections: Vec<PromptText>,
    /// Documents of the quotes that sections cite.
    origins: String,
    quotes: Vec<PromptText>,
}

/// Context of the calls that write one answer.
struct Writer<'a> {
    caller: &'a dyn Caller,
    key: &'a CallKey,
    material: &'a WriterInput<'a>,
    citable: BTreeSet<&'a EvidenceId>,
    /// Key words of all findings and checked quotes.
    words: HashSet<String>,
}

/// Writes the answer.
///
/// Ids that do not belong to a checked quote are removed and counted. A finding that loses all its ids is listed as
/// unsupported. If the model fails or its replies have no substance, the draft is assembled by rules and says so.
///
/// # Errors
///
/// Returns an error if the run cannot continue, or if a limit is reached: the caller may then spend the budget reserved
/// for writing. In the last draft, only if nothing was written.
pub(crate) async fn draft(caller: &dyn Caller, key: &CallKey, material: &WriterInput<'_>) -> Result<Draft, CallError> {
    let writer = Writer::new(caller, key, material);
    let mut draft = draft_by_rules(material.brief, material.tree, material.branches);
    if writer.citable.is_empty() || draft.findings.is_empty() {
        // No model is asked to write without evidence: it would answer from its training data.
        return Ok(draft);
    }
    match writer.written().await {
        Ok(written) => draft = written,
        Err(error) if ends_run(&error) || matches!(error, CallError::Limit(_)) => return Err(error),
        Err(error) => {
            draft.made_do("the answer was assembled", &error);
        }
    }
    Ok(draft)
}

impl<'a> Writer<'a> {
    fn new(caller: &'a dyn Caller, key: &'a CallKey, material: &'a WriterInput<'a>) -> Self {
        let splitter = WordSplitter::default();
        let quotes = || material.branches.values().flat_map(|branch| &branch.evidence).filter(|quote| quote.checked);
        let claims = material.branches.values().flat_map(|branch| &branch.report.findings).map(|finding| &finding.text);
        let words =
            claims.chain(quotes().map(|quote| &quote.quote)).flat_map(|text| splitter.key_stems(text)).collect();
        Self { caller, key, material, citable: quotes().map(|quote| &quote.id).collect(), words }
    }

    async fn written(&self) -> Result<Draft, CallError> {
        let findings: usize = self.material.branches.values().map(|branch| branch.report.findings.len()).sum();
        if findings <= SHORT_FINDINGS || self.material.brief.mode == Mode::Quick {
            return self.whole(Vec::new()).await;
        }
        if !self.can_pay(None) {
            return self.whole(Vec::new()).await;
        }
        match self.at_length().await {
            // The rest of the budget does not cover a long answer, but may cover a short one.
            Err(CallError::Limit(_)) if self.material.is_last => self.whole(Vec::new()).await,
            written => written,
        }
    }

    /// Returns whether the rest of the budget is likely to pay for the sections of an outline that are not kept, and the
    /// summary; without one, for the outline and a section on each node as well.
    fn can_pay(&self, outline: Option<&[OutlineHeading<'_>]>) -> bool {
        let sizes: BTreeMap<_, u64> = self
            .found()
            .into_iter()
            .map(|(node, branch)| {
                let quotes = branch.evidence.iter().map(|quote| quote.quote.as_str()).collect::<Vec<_>>().join("\n");
                (&node.id, self.count(&format!("{}\n{quotes}", node_text(node, branch))))
            })
            .collect();
        let all: u64 = sizes.values().sum();
        let of = |nodes: &[&Node]| nodes.iter().filter_map(|node| sizes.get(&node.id)).sum::<u64>();
        let (first, mut prompts): (_, Vec<u64>) = match outline {
            Some(outline) => (
                self.key.then(Step::Section).at(1),
                outline
                    .iter()
                    .filter(|heading| heading.kept.is_none())
                    .map(|heading| SECTION_RULES + of(&heading.nodes))
                    .collect(),
            ),
            // The outline is estimated: it sees summaries.
            None => {
                let kept: BTreeSet<_> = self.sections_before().flat_map(|section| &section.nodes).collect();
                let changed = sizes.iter().filter(|(id, _)| !kept.contains(*id));
                let sections = changed.map(|(_, size)| SECTION_RULES + size);
                (self.key.then(Step::Outline), sections.chain([SECTION_RULES + all / 4]).collect())
            }
        };
        // Estimated as well: the summary sees the sections instead of the findings.
        prompts.push(SECTION_RULES + all.min(ALL_TOKENS + OTHER_QUOTES));
        self.caller.can_pay(&first, Role::Writer, &prompts)
    }

    /// Writes outline, sections and summary. In the last draft, finished parts are kept if the limits do not pay for
    /// the rest.
    async fn at_length(&self) -> Result<Draft, CallError> {
        let outline = self.outline().await?;
        // An outline may give the same nodes to several sections.
        if !self.can_pay(Some(&outline)) {
            return self.whole(Vec::new()).await;
        }
        let titles: Vec<_> = (1..).zip(&outline).map(|(at, heading)| section_line(at, heading)).collect();
        let titles = titles.join("\n");
        let sections = (0..outline.len()).map(|at| self.section(at, &outline, &titles));
        let mut writing: FuturesOrdered<_> = sections.collect();
        let mut written = Vec::new();
        // Waits for every section even after one failed: a reply that was paid for must reach the journal.
        while let Some(section) = writing.next().await {
            if let Ok(section) = &section
                && outline[written.len()].kept.is_none()
            {
                (self.material.on_section)(&self.section_as_shown(section));
            }
            // Kept as written: [`Self::held_to_evidence`] counts what it removes.
            written.push(section);
        }
        let is_kept = self.material.is_last && written.iter().any(Result::is_ok);
        let mut missing = 0;
        let mut short = None;
        let mut sections = Vec::new();
        for (section, heading) in written.into_iter().zip(&outline) {
            sections.push(match section {
                Err(error @ CallError::Limit(_)) if is_kept => {
                    missing += 1;
                    short = Some(error);
                    self.section_by_rules(heading)
                }
                section => section?,
            });
        }
        let error = match short {
            Some(error) => error,
            None => match self.whole(sections.clone()).await {
                Err(error @ CallError::Limit(_)) if is_kept => error,
                done => return done,
            },
        };
        Ok(self.without_summary(sections, missing, &error))
    }

    /// Returns a section that lists the findings of its nodes.
    fn section_by_rules(&self, heading: &OutlineHeading<'_>) -> Section {
        let findings = self.findings(&heading.nodes);
        let lines: Vec<_> = findings.into_iter().map(|finding| format!("- {}", one_line(&cited(finding)))).collect();
        Section { title: heading.title.clone(), text: lines.join("\n"), nodes: Vec::new() }
    }

    fn findings(&self, nodes: &[&Node]) -> Vec<&'a Finding> {
        let branches = nodes.iter().filter_map(|node| self.material.branches.get(&node.id));
        branches.flat_map(|branch| &branch.report.findings).collect()
    }

    /// Returns an answer from sections whose summary was not written: their first cited sentences take its place.
    /// `missing` sections were not written either.
    fn without_summary(&self, sections: Vec<Section>, missing: usize, why: &CallError) -> Draft {
        let is_cited = |piece: &&str| !piece.starts_with('|') && !marks(piece).is_empty();
        let first = |section: &Section| pieces(&section.text).into_iter().find(is_cited).map(without_bullet);
        let sentences: Vec<_> = sections.iter().filter_map(first).collect();
        let number = sections.len();
        let WriterInput { brief, tree, branches, .. } = self.material;
        let by_rules = draft_by_rules(brief, tree, branches);
        let said = SummaryDraft {
            answer: sentences.join(" "),
            contradictions: Vec::new(),
            open_questions: by_rules.open_questions,
            limitations: Vec::new(),
            confidence: by_rules.confidence,
        };
        let draft = self.held_to_evidence(&said, &[], sections);
        let mut draft = Draft { findings: self.cited_findings(&draft), ..draft };
        let what = match missing {
            0 => "the summary was put together".to_owned(),
            _ => format!("the summary and {missing} of {number} sections were put together"),
        };
        draft.made_do(&what, why);
        draft
    }

    /// Returns the headings. Every node with findings is below at least one.
    async fn outline(&self) -> Result<Vec<OutlineHeading<'a>>, CallError> {
        let found = self.found();
        let before = self
            .sections_before()
            .map(|section| PromptText { id: titled(&section.title, &section.nodes), text: section.text.clone() });
        let before: Vec<_> = before.collect();
        let nodes: Vec<_> = found
            .iter()
            .map(|(node, branch)| PromptText {
                id: node.id.to_string(),
                text: format!("{}\n{}", node.question, branch.report.summary),
            })
            .collect();
        let render = |(nodes, before): &(Vec<PromptText>, Vec<PromptText>)| {
            let (task, aspects) = (&self.material.brief.task, &self.material.brief.aspects);
            let context = json!({
                "task": task, "aspects": aspects, "nodes": nodes, "most_sections": MAX_SECTIONS,
                "before": before, "verdict": self.verdict(),
            });
            Template::Outline.prompt(self.caller, context)
        };
        let room = room::<OutlineDraft>(self.caller, Role::Writer);
        let prompt = fitted(self.caller, room, &mut (nodes, before), render, |(nodes, before)| {
            let texts = nodes.iter_mut().chain(before).map(|own| &mut own.text);
            shorten_longest(texts, &|text| self.count(text))
        });
        let check = |draft: &OutlineDraft| match draft.sections.len() {
            1..=MAX_SECTIONS => Ok(()),
            number => Err(format!("{} (1 to {MAX_SECTIONS} are wanted)", counted(number, "section"))),
        };
        let draft = structured_checked(self.caller, &self.key.then(Step::Outline), &prompt, "outline", check)
            .await
            .map_err(failure)?;
        let mut headings = headings(&draft, &found);
        for heading in &mut headings {
            heading.kept = self.sections_before().find(|section| heading.is_of(section));
        }
        Ok(headings)
    }

    /// Returns the sections of the draft before that may stay as they are: written by a model, and supported in full.
    /// The findings of their nodes are the same: a node that is tried again is taken from its section, see
    /// [`Section::nodes`].
    fn sections_before(&self) -> impl Iterator<Item = &'a Section> {
        let before = self.material.before.filter(|before| !before.is_makeshift);
        let sections = before.into_iter().flat_map(|before| &before.sections);
        sections.filter(|section| {
            let is_supported = !section.text.contains(UNSUPPORTED);
            is_supported && !section.nodes.is_empty() && marks(&section.text).iter().all(|(_, id)| self.is_citable(id))
        })
    }

    /// Returns the verdict on the draft before as text.
    fn verdict(&self) -> Option<String> {
        self.material.verdicts.last().map(in_words)
    }

    fn found(&self) -> Vec<(&'a Node, &'a Branch)> {
        let branch = |node: &'a Node| self.material.branches.get(&node.id).map(|branch| (node, branch));
        let mut found: Vec<_> = self.material.tree.workers().filter_map(branch).collect();
        found.retain(|(_, branch)| !branch.report.findings.is_empty());
        found
    }

    async fn section(&self, at: usize, outline: &[OutlineHeading<'_>], titles: &str) -> Result<Section, CallError> {
        let heading = &outline[at];
        if let Some(section) = heading.kept {
            return Ok(section.clone());
        }
        let title = &heading.title;
        let findings = self.findings(&heading.nodes);
        let mut quotes = self.quotes_behind(&findings);
        let mut view = WriterParts {
            findings: findings.iter().map(|finding| cited(finding)).collect::<Vec<_>>().join("\n"),
            ..WriterParts::default()
        };
        view.quotes = named(quotes.iter().copied());
        let most_words = words_of_section(quotes.len(), outline.len());
        let render = |view: &WriterParts| {
            let (task, findings, quotes) = (&self.material.brief.task, &view.findings, &view.quotes);
            let context = json!({
                "task": task, "title": title, "titles": titles, "findings": findings, "quotes": quotes,
                "most_words": most_words, "verdict": self.verdict(),
            });
            Template::Section.prompt(self.caller, context)
        };
        let room = room::<SectionDraft>(self.caller, Role::Writer);
        if size(self.caller, &render(&view)) > room {
            // Quotes are dropped from the end, so those relevant to the title come first.
            let found_by: BTreeSet<_> = quotes.iter().map(|quote| quote.id.node().clone()).collect();
            let nearest = self.material.nearest.nearest(title, &Vec::from_iter(found_by)).await;
            quotes.sort_by_key(|quote| nearest.iter().position(|id| *id == quote.id).unwrap_or(nearest.len()));
            view.quotes = named(quotes);
        }
        let prompt = self.fitted(room, &mut view, render);
        let check = |draft: &SectionDraft| self.substance(std::iter::once(draft.text.as_str()));
        let key = self.key.then(Step::Section).at(at + 1);
        let draft = structured_checked(self.caller, &key, &prompt, "section", check).await.map_err(failure)?;
        let nodes = heading.ids().into_iter().cloned().collect();
        Ok(Section { title: title.clone(), text: draft.text.trim().to_owned(), nodes })
    }

    /// Returns the quotes that claims cite, in the order of their nodes. A node that only concludes cites the quotes of
    /// others.
    fn quotes_behind(&self, findings: &[&Finding]) -> Vec<&'a Evidence> {
        let cited: BTreeSet<_> = findings.iter().flat_map(|finding| &finding.evidence).collect();
        let quotes = self.material.branches.values().flat_map(|branch| &branch.evidence);
        quotes.filter(|quote| cited.contains(&quote.id)).collect()
    }

    /// Returns a section as it will be printed in the report.
    fn section_as_shown(&self, section: &Section) -> Section {
        let known = strike(&section.text, &|id| self.is_citable(id), UNSUPPORTED).0;
        let text = without_lookalikes(&known).0;
        Section { text: mark_unsupported(&text, &|uncited| self.bears_out(uncited, &text)).text, ..section.clone() }
    }

    /// Writes the answer, from its sections if there are any. Sections replace its findings, which are then not
    /// requested.
    async fn whole(&self, sections: Vec<Section>) -> Result<Draft, CallError> {
        let mut view = self.view(&sections);
        let render = |view: &WriterParts| self.whole_prompt(view);
        let prompt = self.fitted(room::<WriteDraft>(self.caller, Role::Writer), &mut view, render);
        let key = self.key.then(Step::Answer);
        let substance = |said: &SummaryDraft| self.substance(std::iter::once(said.answer.as_str()));
        if sections.is_empty() {
            let check = |draft: &WriteDraft| substance(&draft.said);
            let draft = structured_checked(self.caller, &key, &prompt, "answer", check).await.map_err(failure)?;
            return Ok(self.held_to_evidence(&draft.said, &draft.findings, sections));
        }
        let said = structured_checked(self.caller, &key, &prompt, "answer", substance).await.map_err(failure)?;
        let draft = self.held_to_evidence(&said, &[], sections);
        Ok(Draft { findings: self.cited_findings(&draft), ..draft })
    }

    /// Returns the findings of the nodes whose quotes a draft cites, with those quotes.
    fn cited_findings(&self, draft: &Draft) -> Vec<Finding> {
        let texts = std::iter::once(&draft.answer).chain(draft.sections.iter().map(|section| &section.text));
        let cited: BTreeSet<_> = texts.flat_map(|text| marks(text)).map(|(_, id)| id).collect();
        let found = self.found();
        let findings = found.iter().flat_map(|(_, branch)| &branch.report.findings);
        let known = findings.map(|finding| Finding {
            text: strike(&finding.text, &|id| cited.contains(id), "").0,
            evidence: finding.evidence.iter().filter(|id| cited.contains(id)).cloned().collect(),
            aspect: finding.aspect.clone(),
            is_emphasised: false,
        });
        known.filter(|finding| !finding.evidence.is_empty()).collect()
    }

    /// Returns the parts of the prompt of the whole answer. The summaries repeat the findings, so they are shown only
    /// if the findings do not fit. Sections contain their findings.
    fn view(&self, sections: &[Section]) -> WriterParts {
        let findings: Vec<_> = self.found().iter().map(|(node, branch)| node_text(node, branch)).collect();
        let ledger: Vec<_> = self.material.ledger.iter().copied().filter(|quote| quote.checked).collect();
        if !sections.is_empty() {
            // Sections were written from their quotes, so the summary needs only to know where these are from.
            let cited = Draft { sections: sections.to_vec(), ..Draft::default() };
            let cited = quotes_of(&cited, self.material.branches);
            let is_other = |quote: &&Evidence| quote.within(&cited).is_none();
            let mut room = OTHER_QUOTES;
            let fits = |quote: &&Evidence| {
                room = room.saturating_sub(self.count(&quote.quote));
                room > 0
            };
            let others = ledger.into_iter().filter(is_other).take_while(fits);
            let quotes = named(others);
            let origins = origins(cited.iter().copied()).join("\n");
            let shown = |section: &Section| format!("{}\n{}", section.title, section.text);
            let sections = sections.iter().map(|section| PromptText { id: String::new(), text: shown(section) });
            return WriterParts { sections: sections.collect(), origins, quotes, ..WriterParts::default() };
        }
        // Measured without quotes: those that do not fit are dropped when the prompt is made.
        let view = WriterParts { findings: findings.join("\n\n"), ..WriterParts::default() };
        if size(self.caller, &self.whole_prompt(&view)) <= room::<WriteDraft>(self.caller, Role::Writer) {
            return WriterParts { quotes: named(ledger), ..view };
        }
        let memory = self.material.memory;
        let groups = memory.groups.iter().map(|(name, summary)| (name.clone(), summary.text.clone())).collect();
        WriterParts { summary: memory.global.text.clone(), groups, quotes: named(ledger), ..view }
    }

    fn whole_prompt(&self, view: &WriterParts) -> Prompt {
        let groups: Vec<_> = view.groups.iter().map(|(name, text)| json!({"name": name, "text": text})).collect();
        let context = json!({
            "task": self.material.brief.task,
            "aspects": self.material.brief.aspects,
            "reasons": self.material.reasons.join("\n"),
            "verdict": self.verdict(),
            "summary": view.summary,
            "groups": groups,
            "sections": view.sections,
            "origins": view.origins,
            "findings": view.findings,
            "open": if view.sections.is_empty() { String::new() } else { self.left_open().join("\n") },
            "quotes": view.quotes,
        });
        Template::Write.prompt(self.caller, context)
    }

    /// Returns the questions that the nodes left open: a section need not repeat them.
    fn left_open(&self) -> Vec<String> {
        let mut open = Vec::new();
        let WriterInput { tree, branches, .. } = self.material;
        for question in tree.nodes.iter().flat_map(|node| left_open(node, tree, branches)) {
            add_question(&mut open, question);
        }
        open
    }

    /// Shortens the prompt until it fits: first drops quotes from the end, then shortens the longest text.
    fn fitted(&self, room: u64, view: &mut WriterParts, render: impl Fn(&WriterParts) -> Prompt) -> Prompt {
        let count = |text: &str| self.count(text);
        fitted(self.caller, room, view, render, |view| {
            if view.quotes.pop().is_some() {
                return true;
            }
            let sections = view.sections.iter_mut().map(|section| &mut section.text);
            let texts =
                [&mut view.findings, &mut view.summary].into_iter().chain(view.groups.values_mut()).chain(sections);
            shorten_longest(texts, &count)
        })
    }

    fn count(&self, text: &str) -> u64 {
        self.caller.count(Role::Writer, text)
    }

    fn is_citable(&self, id: &EvidenceId) -> bool {
        self.citable.contains(id)
    }

    /// Returns an error if a text is not an answer in substance: too short, a placeholder, without citations, with its
    /// own list of sources or addresses, or on another topic. The error text is the complaint a model is asked to
    /// repair.
    fn substance<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Result<(), String> {
        let text = texts.collect::<Vec<_>>().join("\n");
        let plain = strike(&text, &|_| false, "").0;
        let lower = plain.to_lowercase();
        let splitter = WordSplitter::default();
        let stems = splitter.key_stems(&plain);
        let shared = stems.iter().filter(|stem| self.words.contains(*stem)).count();
        #[expect(clippy::cast_precision_loss, reason = "answers are short")]
        let share = shared as f32 / stems.len().max(1) as f32;
        let said = self.words.len();
        match () {
            () if count_words(&plain) < MIN_WORDS => Err("it is too short to be an answer".to_owned()),
            // Sources may be about placeholders themselves.
            () if self.has_placeholder(&lower, &PLACEHOLDERS) || self.has_placeholder(&plain, &PLACEHOLDER_MARKS) => {
                Err("it is a placeholder, not an answer".to_owned())
            }
            () if !marks(&text).iter().any(|(_, id)| self.is_citable(id)) => {
                Err("it cites no evidence: put ids that were given in brackets after each claim, such as `[n2e1]`"
                    .to_owned())
            }
            () if text.lines().any(is_own_list) => {
                Err("it has its own list of sources: leave it out, code prints the sources".to_owned())
            }
            () if self.has_own_address(&plain) => {
                Err("it has an address that is not in any quote: cite ids only".to_owned())
            }
            () if said > 0 && share < MIN_SHARED => Err("it is not about the findings".to_owned()),
            () => Ok(()),
        }
    }

    /// Returns whether cited quotes support a text without citations: they have all of its figures and most of its key
    /// words. The quotes of the whole answer, with the claims that cite them, may support its first line; those of a
    /// sentence, its end.
    fn bears_out(&self, uncited: Uncited<'_>, text: &str) -> bool {
        let splitter = WordSplitter::default();
        let (said, citing) = match uncited {
            Uncited::Opening(line) => (line, text),
            Uncited::End { end, of } => (end, of),
        };
        let ids: BTreeSet<_> = marks(citing).into_iter().map(|(_, id)| id).collect();
        let quotes = self.material.branches.values().flat_map(|branch| &branch.evidence);
        let quotes = quotes.filter(|quote| quote.checked && ids.contains(&quote.id)).map(|quote| quote.quote.as_str());
        let is_opening = matches!(uncited, Uncited::Opening(_));
        let claims = citing.lines().filter(|line| is_opening && !marks(line).is_empty());
        let known: HashSet<String> = claims.chain(quotes).flat_map(|text| splitter.key_stems(text)).collect();
        let wanted = splitter.key_stems(said);
        let found = wanted.iter().filter(|stem| known.contains(*stem)).count();
        #[expect(clippy::cast_precision_loss, reason = "a line is short")]
        let share = found as f32 / wanted.len().max(1) as f32;
        share >= SUMMED_UP_SHARE && wanted.iter().all(|stem| known.contains(stem) || !has_digit(stem))
    }

    fn has_placeholder(&self, text: &str, placeholders: &[&str]) -> bool {
        placeholders.iter().any(|known| find_words(text, known).is_some() && !self.is_found(known))
    }

    fn is_found(&self, words: &str) -> bool {
        WordSplitter::default().words(words).iter().all(|word| self.words.contains(&word.stem))
    }

    fn has_own_address(&self, text: &str) -> bool {
        let addresses =
            text.split(|letter: char| letter.is_whitespace() || matches!(letter, '(' | ')' | '<' | '>' | '"'));
        let mut addresses =
            addresses.filter(|word| word.contains("://")).map(|word| word.trim_end_matches(['.', ',', ';', ']']));
        let quotes = || self.material.branches.values().flat_map(|branch| &branch.evidence);
        addresses.any(|address| !quotes().any(|quote| quote.quote.contains(address)))
    }

    /// Removes unknown citations from a draft, marks unsupported claims, and adds limitations with the counts.
    fn held_to_evidence(&self, draft: &SummaryDraft, findings: &[FindingDraft], sections: Vec<Section>) -> Draft {
        let is_citable = |id: &EvidenceId| self.is_citable(id);
        let mut struck = 0;
        let mut clean = |text: &str, instead: &str| {
            let (text, number) = strike(text, &is_citable, instead);
            let (text, lookalikes) = without_lookalikes(&text);
            struck += number + lookalikes;
            text
        };
        let (mut uncited, mut open) = (0, Vec::new());
        let mut borne_out = |text: String| {
            let marked = mark_unsupported(&text, &|uncited| self.bears_out(uncited, &text));
            uncited += marked.number;
            open.extend(marked.open);
            marked.text
        };
        // Unknown ids are removed first, so that they support nothing.
        let answer = borne_out(clean(draft.answer.trim(), UNSUPPORTED));
        let sections = sections
            .into_iter()
            .map(|section| Section { text: borne_out(clean(&section.text, UNSUPPORTED)), ..section });
        let sections: Vec<_> = sections.collect();
        let mut lines = |texts: &[String]| -> Vec<String> {
            let lines = texts.iter().map(|text| one_line(&clean(text, ""))).filter(|text| !text.is_empty());
            lines.collect()
        };
        // Without a citation, a reader cannot look up either side.
        let contradictions = lines(&draft.contradictions).into_iter().filter(|text| !marks(text).is_empty()).collect();
        let mut open_questions = lines(&draft.open_questions);
        for question in open {
            add_question(&mut open_questions, question);
        }
        let mut limitations = lines(&draft.limitations);
        struck += findings.iter().flat_map(FindingDraft::ids).filter(|id| !is_citable(id)).count();
        let findings = findings
            .iter()
            .map(|finding| finding.known(&is_citable, self.material.brief.aspects.iter().map(|aspect| &aspect.id)));
        let (supported, unsupported): (Vec<_>, Vec<_>) =
            findings.filter(|finding| !finding.text.is_empty()).partition(|finding| !finding.evidence.is_empty());
        limitations.extend(
            unsupported
                .into_iter()
                .map(|finding| format!("unsupported and left out of the findings: {}", finding.text)),
        );
        if struck > 0 {
            limitations.push(format!("{} removed: no checked quote has that id", counted(struck, "citation")));
        }
        if uncited > 0 {
            limitations.push(format!("{} of the answer marked as unsupported", counted(uncited, "claim")));
        }
        let confidence = confidence(draft.confidence);
        Draft {
            answer,
            sections,
            findings: supported,
            contradictions,
            open_questions,
            limitations,
            confidence,
            is_makeshift: false,
            output: None,
        }
    }
}

/// Converts an answer to the caller's schema. The result has no ids of evidence, which mean nothing outside the report.
pub(crate) async fn output(
    caller: &dyn Caller,
    key: &CallKey,
    question: &str,
    draft: &Draft,
    schema: &Value,
) -> Result<Value, CallError> {
    let findings = std::iter::once(&draft.answer).chain(draft.findings.iter().map(|finding| &finding.text));
    let findings = findings.map(|text| without_ids(text)).collect::<Vec<_>>().join("\n");
    let prompt = output_prompt(caller, question, findings, schema);
    let mut output = structured_value(caller, key, &prompt, "output", schema).await.map_err(failure)?;
    strike_ids(&mut output);
    Ok(output)
}

fn without_ids(text: &str) -> String {
    strike(text, &|_| false, "").0
}

fn strike_ids(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_ids(text),
        Value::Array(items) => items.iter_mut().for_each(strike_ids),
        Value::Object(members) => members.values_mut().for_each(strike_ids),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A heading of an outline.
struct OutlineHeading<'a> {
    title: String,
    /// The nodes that its section is written from.
    nodes: Vec<&'a Node>,
    /// The section of the draft before that stands in its place.
    kept: Option<&'a Section>,
}

impl<'a> OutlineHeading<'a> {
    fn of(title: &str, nodes: Vec<&'a Node>) -> Self {
        Self { title: one_line(title), nodes, kept: None }
    }

    fn ids(&self) -> BTreeSet<&'a NodeId> {
        self.nodes.iter().map(|node| &node.id).collect()
    }

    fn is_of(&self, section: &Section) -> bool {
        section.title == self.title && self.ids() == section.nodes.iter().collect()
    }
}

/// Resolves the node ids of an outline. Nodes it leaves out are collected in a section of their own.
fn headings<'a>(draft: &OutlineDraft, found: &[(&'a Node, &'a Branch)]) -> Vec<OutlineHeading<'a>> {
    let node = |id: &String| found.iter().map(|(node, _)| *node).find(|node| node.id.to_string() == id.trim());
    let heading =
        |draft: &HeadingDraft| OutlineHeading::of(&draft.title, draft.nodes.iter().filter_map(node).collect());
    let mut headings: Vec<_> = draft.sections.iter().map(heading).collect();
    headings.retain(|heading| !heading.title.is_empty() && !heading.nodes.is_empty());
    let placed: BTreeSet<_> = headings.iter().flat_map(|heading| heading.nodes.iter().map(|node| &node.id)).collect();
    let left: Vec<_> = found.iter().map(|(node, _)| *node).filter(|node| !placed.contains(&node.id)).collect();
    // Their findings would otherwise be missing from the report.
    if !left.is_empty() {
        headings.push(OutlineHeading::of("Further findings", left));
    }
    headings
}

/// Returns the maximum number of words of a section, by the number of its quotes and of all sections.
fn words_of_section(quotes: usize, sections: usize) -> usize {
    let by_quotes = SECTION_WORDS.start() / 2 + WORDS_PER_QUOTE * quotes;
    by_quotes.min(ALL_WORDS / sections.max(1)).clamp(*SECTION_WORDS.start(), *SECTION_WORDS.end()) / 10 * 10
}

/// Adds a question unless one in the list asks the same in other words. Questions with different figures are
/// different.
fn add_question(questions: &mut Vec<String>, question: String) {
    let asked = subject_of(&question);
    let repeats = |known: &String| {
        let known = subject_of(known);
        #[expect(clippy::cast_precision_loss, reason = "a question is short")]
        let share = asked.intersection(&known).count() as f32 / asked.union(&known).count().max(1) as f32;
        share >= SAME_QUESTION && !asked.symmetric_difference(&known).any(|stem| has_digit(stem))
    };
    if !questions.iter().any(repeats) {
        questions.push(question);
    }
}

/// Returns the text of a list item, or the text itself if it is not one.
fn without_bullet(text: &str) -> String {
    let item = bulleted_item(text);
    let number = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let numbered = number.strip_prefix(". ").filter(|_| number.len() < text.len());
    item.or(numbered).unwrap_or(text).to_owned()
}

/// Returns a section as the prompts of the others list it.
fn section_line(number: usize, heading: &OutlineHeading<'_>) -> String {
    let questions: Vec<_> = heading.nodes.iter().map(|node| one_line(node.question.as_str())).collect();
    format!("{number}. {} ({})", heading.title, questions.join(" · "))
}

/// Returns the title of a section with its nodes, as the prompt of the next outline lists it.
fn titled(title: &str, nodes: &[NodeId]) -> String {
    let ids: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    format!("{title} ({})", ids.join(", "))
}

fn node_text(node: &Node, branch: &Branch) -> String {
    format!("{} asked: {}\n{}", node.id, node.question, claims_text(&branch.report))
}

/// Returns quotes with their provenance. One whose words stand in a quote above refers to that.
fn named<'q>(quotes: impl IntoIterator<Item = &'q Evidence>) -> Vec<PromptText> {
    let mut above: Vec<&Evidence> = Vec::new();
    let mut named = Vec::new();
    for quote in quotes {
        let whole = || format!("From: {}\n{}", quote.source.provenance(), quote.quote);
        let text = quote.reference(&above).unwrap_or_else(whole);
        above.push(quote);
        named.push(PromptText { id: quote.id.to_string(), text });
    }
    named
}

/// Returns whether a line is the heading of a list of sources, in any markup.
fn is_own_list(line: &str) -> bool {
    const NAMES: [&str; 8] = [
        "sources", "references", "bibliography", "citations", "works cited", "footnotes", "endnotes", "further reading",
    ];
    let words: String = line.chars().filter(|letter| letter.is_alphabetic() || *letter == ' ').collect();
    NAMES.contains(&words.trim().to_lowercase().as_str())
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
