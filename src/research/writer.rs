//! Writes the answer: a model drafts it with citations by id, and code enforces that every id belongs to a checked
//! quote.
//!
//! A short answer is one call, and so is a report in sections whose findings and quotes are few. A longer one is outlined,
//! its sections are written in parallel, each from its own findings, and a last call writes the summary from them. A reply that is well-formed but has no substance (a placeholder, no citation, another topic) is
//! refused like one that breaks its schema: it is repaired once and then written anew. If that fails too, the answer is
//! assembled from the branch reports.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::assemble::draft_by_rules;
use super::branch::{Branch, Finding};
use super::claim::{
    UNSUPPORTED, Uncited, is_about_findings, is_repeated, mark_unsupported, subject_of, without_lookalikes,
};
use super::compress::{FindingDraft, confidence, output_prompt};
use super::cut::{cut, pieces};
use super::evidence::{Evidence, EvidenceId, marks, origins, strike};
use super::memory::{Memory, cited, claims_text};
use super::node::{Node, NodeId, Tree};
use super::planner::in_words;
use super::prompt::{PromptText, Template, ends_run, failure, fitted, room, shorten_longest, shown_quotes, size};
use super::question::{Brief, Mode};
use super::report::{Draft, Section, quotes_of};
use super::verdict::{Verdict, left_open};
use crate::base::line::{bulleted_item, counted, one_line};
use crate::base::step::Step;
use crate::base::word::{WordSplitter, count_words, find_words, has_digit};
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Role};
use crate::llm::structured::{structured_checked, structured_value};

/// Maximum number of findings of a short answer; with more, the answer is written in sections.
const SHORT_FINDINGS: usize = 24;

/// Maximum number of sections of a long answer. Each may be a separate call, so this also bounds the cost.
const MAX_SECTIONS: usize = 8;

/// Maximum number of tokens of the prompt of a report in one call. A writer that sees everything says each thing once, and
/// is cheaper: 45 findings with 60 quotes are 6,500 tokens in one call, and 15,000 with an outline, seven sections and a
/// summary. In longer prompts, models tend to overlook what stands in the middle.
const ONE_CALL_TOKENS: u64 = 10_000;

/// Tokens of a reply set aside for each word of its sections: a word takes about two with its share of the citations,
/// and a reply that is cut off is lost.
const REPLY_TOKENS_PER_WORD: usize = 4;

/// Minimum number of words that the reply to one call must have room for. Sections that are written separately can be
/// longer together.
const LEAST_REPORT_WORDS: usize = 600;

/// Tokens of a finding in the list that is outlined: enough to tell what it is about.
const LISTED_TOKENS: u64 = 40;

/// Tokens to which [`LISTED_TOKENS`] may be lowered for a list that does not fit.
const LEAST_LISTED_TOKENS: u64 = 4;

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
    /// Called with each section of a long answer, in order, after its citations were checked, and the key of the call
    /// that wrote it.
    pub(crate) on_section: &'a (dyn Fn(&CallKey, &Section) + Send + Sync),
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

/// A report in one reply, as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct WholeDraft {
    #[serde(flatten)]
    said: SummaryDraft,
    /// In the order a reader needs them.
    sections: Vec<TitledDraft>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TitledDraft {
    /// A short title.
    title: String,
    /// Its text, with ids in brackets.
    text: String,
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
    /// Numbers of the findings it is written from.
    findings: Vec<i64>,
}

/// A section, as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SectionDraft {
    /// Its text, with ids in brackets.
    text: String,
}

/// Parts of a prompt that [`Writer::fitted`] may shorten.
#[derive(Clone, Debug, Default)]
struct WriterParts<'a> {
    findings: String,
    summary: String,
    groups: BTreeMap<String, String>,
    sections: Vec<PromptText>,
    /// Documents of the quotes that sections cite.
    origins: String,
    /// Most relevant first. The prompt shows those of a document together.
    quotes: Vec<&'a Evidence>,
    /// Maximum number of words of the sections that a report in one call is asked for; `None` in other prompts.
    most_words: Option<usize>,
}

/// A finding of a node. Outlines number all of them, from 1.
#[derive(Clone, Copy, Debug)]
struct NodeFinding<'a> {
    node: &'a Node,
    /// Its number among the findings of the node, from 1.
    number: usize,
    finding: &'a Finding,
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
        let all = self.all_findings();
        if all.len() <= SHORT_FINDINGS || self.material.brief.mode == Mode::Quick {
            return self.whole(Vec::new()).await;
        }
        if let Some(prompt) = self.one_call_prompt(&all) {
            return self.in_one_call(&prompt, &all).await;
        }
        let outline_prompt = self.outline_prompt(&all);
        if !self.can_begin(&all, &outline_prompt) {
            return self.whole(Vec::new()).await;
        }
        match self.at_length(&all, &outline_prompt).await {
            // The rest of the budget does not cover a long answer, but may cover a short one.
            Err(CallError::Limit(_)) if self.material.is_last => self.whole(Vec::new()).await,
            written => written,
        }
    }

    /// Returns the prompt of a report in one call, unless it or its reply would be too long, or sections of the draft
    /// before may stand: an outline keeps those as they are.
    fn one_call_prompt(&self, all: &[NodeFinding<'a>]) -> Option<Prompt> {
        let most_words = ALL_WORDS.min(self.caller.output_limit(Role::Writer) as usize / REPLY_TOKENS_PER_WORD);
        if most_words < LEAST_REPORT_WORDS || self.sections_before().next().is_some() {
            return None;
        }
        let view = WriterParts {
            findings: self.findings_by_node(),
            quotes: self.quotes_behind(all),
            most_words: Some(most_words),
            ..WriterParts::default()
        };
        let prompt = self.whole_prompt(&view);
        let room = room::<WholeDraft>(self.caller, Role::Writer);
        (size(self.caller, &prompt) <= ONE_CALL_TOKENS.min(room)).then_some(prompt)
    }

    /// Writes summary and sections in one call.
    async fn in_one_call(&self, prompt: &Prompt, all: &[NodeFinding<'a>]) -> Result<Draft, CallError> {
        let check = |draft: &WholeDraft| {
            match written_sections(draft).count() {
                0 => return Err("`sections` is empty".to_owned()),
                1..=MAX_SECTIONS => {}
                number => return Err(format!("{} (1 to {MAX_SECTIONS} are wanted)", counted(number, "section"))),
            }
            // Each by itself: a section may cite what the answer does not.
            let texts = written_sections(draft).map(|section| section.text.as_str());
            std::iter::once(draft.said.answer.as_str()).chain(texts).try_for_each(|text| self.substance(text))
        };
        let key = self.key.then(Step::Answer);
        let whole = structured_checked(self.caller, &key, prompt, "report", check).await.map_err(failure)?;
        let sections = sections_of(&whole, all);
        for section in &sections {
            (self.material.on_section)(&key, &self.section_as_shown(section));
        }
        Ok(self.in_sections(&whole.said, sections))
    }

    /// Returns the key of the section at this place in the outline.
    fn section_key(&self, at: usize) -> CallKey {
        self.key.then(Step::Section).at(at + 1)
    }

    /// Returns whether the rest of the budget is likely to pay for an outline, the sections it may have, and the summary.
    fn can_begin(&self, all: &[NodeFinding<'a>], outline_prompt: &Prompt) -> bool {
        let before: Vec<_> = self.sections_before().collect();
        let is_kept = |found: &NodeFinding<'_>| before.iter().any(|section| is_written_from(section, found));
        let new: Vec<_> = all.iter().filter(|found| !is_kept(found)).copied().collect();
        let nodes = nodes_of(new.iter().copied()).len();
        // Estimated: a section for each node or aspect, with an equal share of the findings.
        let number = nodes.max(self.material.brief.aspects.len()).min(MAX_SECTIONS).min(new.len());
        let section = |own: &[NodeFinding<'a>]| self.section_size("", own, number, "");
        let (rules, whole) = (section(&[]), section(&new));
        let each = rules + whole.saturating_sub(rules) / number.max(1) as u64;
        let each = each.min(room::<SectionDraft>(self.caller, Role::Writer));
        let mut prompts = vec![size(self.caller, outline_prompt)];
        prompts.extend(std::iter::repeat_n(each, number));
        prompts.push(self.summary_size(all));
        self.caller.can_pay(&self.key.then(Step::Outline), Role::Writer, &prompts)
    }

    /// Returns whether the rest of the budget is likely to pay for the sections of an outline that are not kept, and the
    /// summary.
    fn can_pay(&self, outline: &[OutlineHeading<'_>], all: &[NodeFinding<'a>], titles: &str) -> bool {
        // A section that stands has no call that could be on record.
        let Some(first) = outline.iter().position(|heading| heading.kept.is_none()) else { return true };
        let new = outline.iter().filter(|heading| heading.kept.is_none());
        let sections =
            new.map(|heading| self.section_size(&heading.title, &heading.findings(all), outline.len(), titles));
        let room = room::<SectionDraft>(self.caller, Role::Writer);
        let prompts: Vec<_> = sections.map(|size| size.min(room)).chain([self.summary_size(all)]).collect();
        self.caller.can_pay(&self.section_key(first), Role::Writer, &prompts)
    }

    /// Returns the tokens of the prompt of a section, of which an outline has `number`, before it is shortened to fit.
    fn section_size(&self, title: &str, own: &[NodeFinding<'a>], number: usize, titles: &str) -> u64 {
        let view = self.section_view(own);
        let most_words = words_of_section(view.quotes.len(), number);
        size(self.caller, &self.section_prompt(&view, title, titles, most_words))
    }

    /// Returns the tokens of the prompt of the summary. Its sections are not written yet, so they are estimated.
    fn summary_size(&self, all: &[NodeFinding<'a>]) -> u64 {
        let WriterParts { findings, quotes, .. } = self.section_view(all);
        let origins = origins(quotes.iter().copied()).join("\n");
        let quoted = quotes.iter().map(|quote| quote.quote.as_str()).collect::<Vec<_>>().join("\n");
        let material = self.count(&findings).min(ALL_TOKENS) + self.count(&quoted).min(OTHER_QUOTES);
        let view = WriterParts { sections: vec![PromptText::default()], origins, ..WriterParts::default() };
        size(self.caller, &self.whole_prompt(&view)) + material
    }

    /// Writes outline, sections and summary. In the last draft, finished parts are kept if the limits do not pay for
    /// the rest.
    async fn at_length(&self, all: &[NodeFinding<'a>], outline_prompt: &Prompt) -> Result<Draft, CallError> {
        let outline = self.outline(all, outline_prompt).await?;
        let titles = titles(&outline, all);
        // An outline may have more sections than were expected.
        if !self.can_pay(&outline, all, &titles) {
            return self.whole(Vec::new()).await;
        }
        let sections = (0..outline.len()).map(|at| self.section(at, &outline, all, &titles));
        let mut writing: FuturesOrdered<_> = sections.collect();
        let mut written = Vec::new();
        // Waits for every section even after one failed: a reply that was paid for must reach the journal.
        while let Some(section) = writing.next().await {
            if let Ok(section) = &section
                && outline[written.len()].kept.is_none()
            {
                (self.material.on_section)(&self.section_key(written.len()), &self.section_as_shown(section));
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
                    section_by_rules(heading, all)
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
        let mut draft = self.in_sections(&said, sections);
        let what = match missing {
            0 => "the summary was put together".to_owned(),
            _ => format!("the summary and {missing} of {number} sections were put together"),
        };
        draft.made_do(&what, why);
        draft
    }

    /// Returns the headings. Every finding is below one.
    async fn outline(&self, all: &[NodeFinding<'a>], prompt: &Prompt) -> Result<Vec<OutlineHeading<'a>>, CallError> {
        let before: Vec<_> = self.sections_before().collect();
        let check = |draft: &OutlineDraft| match draft.sections.len() {
            1..=MAX_SECTIONS if draft.sections.iter().any(|said| said.is_meant(all, &before)) => Ok(()),
            1..=MAX_SECTIONS => Err("no section has the number of a finding in the list".to_owned()),
            number => Err(format!("{} (1 to {MAX_SECTIONS} are wanted)", counted(number, "section"))),
        };
        let key = self.key.then(Step::Outline);
        let draft = structured_checked(self.caller, &key, prompt, "outline", check).await.map_err(failure)?;
        Ok(headings(&draft, all, &before))
    }

    /// Returns the prompt of the outline, which lists the findings, without their ids and shortened, by node.
    fn outline_prompt(&self, all: &[NodeFinding<'a>]) -> Prompt {
        let count = |text: &str| self.count(text);
        let texts = all.iter().map(|found| one_line(&without_ids(&found.finding.text)));
        let texts: Vec<_> = texts.map(|text| cut(&text, LISTED_TOKENS, &count).to_owned()).collect();
        let before =
            self.sections_before().map(|section| PromptText { id: titled(section, all), text: section.text.clone() });
        let before: Vec<_> = before.collect();
        let render = |(texts, before): &(Vec<String>, Vec<PromptText>)| {
            let nodes = nodes_of(all.iter().copied()).into_iter().map(|node| PromptText {
                id: node.id.to_string(),
                text: format!("{}\n{}", one_line(node.question.as_str()), listed(node, all, texts)),
            });
            let context = json!({
                "task": self.material.brief.task, "aspects": self.material.brief.aspects,
                "nodes": nodes.collect::<Vec<_>>(), "most_sections": MAX_SECTIONS,
                "before": before, "verdict": self.verdict(),
            });
            Template::Outline.prompt(self.caller, context)
        };
        let room = room::<OutlineDraft>(self.caller, Role::Writer);
        fitted(self.caller, room, &mut (texts, before), render, |(texts, before)| {
            // Sections are kept by their titles, so their texts are shortened first.
            if shorten_longest(before.iter_mut().map(|section| &mut section.text), &count) {
                return true;
            }
            // All at once: one by one would take a prompt each.
            let longest = texts.iter().map(|text| count(text)).max().unwrap_or(0);
            for text in texts {
                *text = cut(text, longest * 3 / 4, &count).to_owned();
            }
            longest > LEAST_LISTED_TOKENS
        })
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

    /// Returns the findings of all nodes, in the order in which outlines number them.
    fn all_findings(&self) -> Vec<NodeFinding<'a>> {
        let mut all = Vec::new();
        for (node, branch) in self.found() {
            let findings = (1..).zip(&branch.report.findings);
            all.extend(findings.map(|(number, finding)| NodeFinding { node, number, finding }));
        }
        all
    }

    async fn section(
        &self,
        at: usize,
        outline: &[OutlineHeading<'_>],
        all: &[NodeFinding<'a>],
        titles: &str,
    ) -> Result<Section, CallError> {
        let heading = &outline[at];
        if let Some(section) = heading.kept {
            return Ok(section.clone());
        }
        let title = &heading.title;
        let mut view = self.section_view(&heading.findings(all));
        let most_words = words_of_section(view.quotes.len(), outline.len());
        let render = |view: &WriterParts<'_>| self.section_prompt(view, title, titles, most_words);
        let room = room::<SectionDraft>(self.caller, Role::Writer);
        if size(self.caller, &render(&view)) > room {
            // Quotes are dropped from the end, so those relevant to the title come first.
            let found_by: BTreeSet<_> = view.quotes.iter().map(|quote| quote.id.node().clone()).collect();
            let nearest = self.material.nearest.nearest(title, &Vec::from_iter(found_by)).await;
            view.quotes.sort_by_key(|quote| nearest.iter().position(|id| *id == quote.id).unwrap_or(nearest.len()));
        }
        let prompt = self.fitted(room, &mut view, render);
        let check = |draft: &SectionDraft| self.substance(&draft.text);
        let key = self.section_key(at);
        let draft = structured_checked(self.caller, &key, &prompt, "section", check).await.map_err(failure)?;
        Ok(heading.section(draft.text.trim(), all))
    }

    fn section_view(&self, own: &[NodeFinding<'a>]) -> WriterParts<'a> {
        WriterParts {
            findings: own.iter().map(|found| cited(found.finding)).collect::<Vec<_>>().join("\n"),
            quotes: self.quotes_behind(own),
            ..WriterParts::default()
        }
    }

    fn section_prompt(&self, view: &WriterParts<'_>, title: &str, titles: &str, most_words: usize) -> Prompt {
        let context = json!({
            "task": self.material.brief.task, "title": title, "titles": titles, "findings": view.findings,
            "quotes": shown(&view.quotes), "most_words": most_words, "verdict": self.verdict(),
        });
        Template::Section.prompt(self.caller, context)
    }

    /// Returns the quotes that claims cite, in the order of their nodes. A node that only concludes cites the quotes of
    /// others.
    fn quotes_behind(&self, found: &[NodeFinding<'_>]) -> Vec<&'a Evidence> {
        let cited: BTreeSet<_> = found.iter().flat_map(|found| &found.finding.evidence).collect();
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
        let render = |view: &WriterParts<'_>| self.whole_prompt(view);
        let prompt = self.fitted(room::<WriteDraft>(self.caller, Role::Writer), &mut view, render);
        let key = self.key.then(Step::Answer);
        let substance = |said: &SummaryDraft| self.substance(&said.answer);
        if sections.is_empty() {
            let check = |draft: &WriteDraft| substance(&draft.said);
            let draft = structured_checked(self.caller, &key, &prompt, "answer", check).await.map_err(failure)?;
            return Ok(self.held_to_evidence(&draft.said, &draft.findings, sections));
        }
        let said = structured_checked(self.caller, &key, &prompt, "answer", substance).await.map_err(failure)?;
        Ok(self.in_sections(&said, sections))
    }

    /// Returns the draft of an answer in sections. Its findings are those whose quotes it cites.
    fn in_sections(&self, said: &SummaryDraft, sections: Vec<Section>) -> Draft {
        let draft = self.held_to_evidence(said, &[], sections);
        Draft { findings: self.cited_findings(&draft), ..draft }
    }

    /// Returns the findings whose quotes a draft cites, with those quotes.
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
    fn view(&self, sections: &[Section]) -> WriterParts<'a> {
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
            let quotes = ledger.into_iter().filter(is_other).take_while(fits).collect();
            let origins = origins(cited.iter().copied()).join("\n");
            let shown = |section: &Section| format!("{}\n{}", section.title, section.text);
            let sections = sections.iter().map(|section| PromptText { id: String::new(), text: shown(section) });
            return WriterParts { sections: sections.collect(), origins, quotes, ..WriterParts::default() };
        }
        // Measured without quotes: those that do not fit are dropped when the prompt is made.
        let view = WriterParts { findings: self.findings_by_node(), ..WriterParts::default() };
        if size(self.caller, &self.whole_prompt(&view)) <= room::<WriteDraft>(self.caller, Role::Writer) {
            return WriterParts { quotes: ledger, ..view };
        }
        let memory = self.material.memory;
        let groups = memory.groups.iter().map(|(name, summary)| (name.clone(), summary.text.clone())).collect();
        WriterParts { summary: memory.global.text.clone(), groups, quotes: ledger, ..view }
    }

    fn findings_by_node(&self) -> String {
        let texts: Vec<_> = self.found().into_iter().map(|(node, branch)| node_text(node, branch)).collect();
        texts.join("\n\n")
    }

    fn whole_prompt(&self, view: &WriterParts<'_>) -> Prompt {
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
            "quotes": shown(&view.quotes),
            "most_words": view.most_words,
            "most_sections": MAX_SECTIONS,
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
    fn fitted<'v>(&self, room: u64, view: &mut WriterParts<'v>, render: impl Fn(&WriterParts<'v>) -> Prompt) -> Prompt {
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
    fn substance(&self, text: &str) -> Result<(), String> {
        let plain = strike(text, &|_| false, "").0;
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
            () if !marks(text).iter().any(|(_, id)| self.is_citable(id)) => {
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
        // A gap that is listed as an open question is not a limitation as well.
        limitations.retain(|own| !(is_about_findings(own) && is_repeated(own, &open_questions)));
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
#[derive(Debug)]
struct OutlineHeading<'a> {
    title: String,
    /// Indices of the findings that its section is written from.
    own: BTreeSet<usize>,
    /// The section of the draft before that stands in its place.
    kept: Option<&'a Section>,
}

impl OutlineHeading<'_> {
    fn findings<'f>(&self, all: &[NodeFinding<'f>]) -> Vec<NodeFinding<'f>> {
        self.own.iter().map(|at| all[*at]).collect()
    }

    /// Returns its section with a text.
    fn section(&self, text: &str, all: &[NodeFinding<'_>]) -> Section {
        let mut findings: BTreeMap<NodeId, BTreeSet<usize>> = BTreeMap::new();
        for found in self.findings(all) {
            findings.entry(found.node.id.clone()).or_default().insert(found.number);
        }
        Section {
            title: self.title.clone(),
            text: text.to_owned(),
            nodes: findings.keys().cloned().collect(),
            findings,
        }
    }
}

impl HeadingDraft {
    /// Returns the indices of the findings it names, without numbers that are not in the list.
    fn named(&self, all: &[NodeFinding<'_>]) -> BTreeSet<usize> {
        let index = |number: &i64| usize::try_from(*number).ok()?.checked_sub(1);
        self.findings.iter().filter_map(index).filter(|at| *at < all.len()).collect()
    }

    /// Returns whether it names findings or repeats a section of the draft before.
    fn is_meant(&self, all: &[NodeFinding<'_>], before: &[&Section]) -> bool {
        let is_titled = !self.title.trim().is_empty();
        is_titled
            && (!self.named(all).is_empty() || before.iter().any(|section| is_same_title(&section.title, &self.title)))
    }
}

/// Returns the headings of an outline with their findings, each in one section.
///
/// A section of the draft before whose title is repeated keeps its findings, and stands if the outline names no others
/// for it. Findings that no heading names are added by [`place`].
fn headings<'a>(draft: &OutlineDraft, all: &[NodeFinding<'_>], before: &[&'a Section]) -> Vec<OutlineHeading<'a>> {
    let mut left: BTreeSet<usize> = (0..all.len()).collect();
    let mut before = before.to_vec();
    let mut headings = Vec::new();
    for said in &draft.sections {
        let title = one_line(&said.title);
        // Each stands in one place, even if its title is repeated twice.
        let known = before.iter().position(|section| is_same_title(&section.title, &title)).map(|at| before.remove(at));
        let own: BTreeSet<_> =
            (0..all.len()).filter(|at| known.is_some_and(|section| is_written_from(section, &all[*at]))).collect();
        left = &left - &own;
        let kept = known.filter(|_| said.named(all).is_subset(&own));
        headings.push(OutlineHeading { title, own, kept });
    }
    // In a second pass, because sections that stand keep their findings.
    for (heading, said) in headings.iter_mut().zip(&draft.sections) {
        if !heading.title.is_empty() {
            let new = &said.named(all) & &left;
            left = &left - &new;
            heading.own.extend(new);
        }
    }
    headings.retain(|heading| !heading.title.is_empty() && !heading.own.is_empty());
    let homeless = place(left, &mut headings, all);
    // They would otherwise be missing from the report.
    if !homeless.is_empty() && headings.len() < MAX_SECTIONS {
        headings.push(OutlineHeading { title: "Further findings".to_owned(), own: homeless, kept: None });
    } else {
        add_to_last(homeless, &mut headings);
    }
    headings
}

/// Adds findings to the last section that does not stand or, if all do, to the last.
fn add_to_last(findings: BTreeSet<usize>, headings: &mut [OutlineHeading<'_>]) {
    let new = headings.iter().rposition(|heading| heading.kept.is_none());
    let last = new.or_else(|| headings.len().checked_sub(1)).filter(|_| !findings.is_empty());
    if let Some(at) = last {
        headings[at].own.extend(findings);
        headings[at].kept = None;
    }
}

/// Returns whether two titles have the same words.
fn is_same_title(a: &str, b: &str) -> bool {
    let words = |title: &str| {
        let title = title.to_lowercase();
        title
            .split(|letter: char| !letter.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    words(a) == words(b)
}

/// Adds findings that no section names to those that fit: the last section with a finding on the same aspect or, if there
/// is none, of the same node. Returns the rest.
fn place(left: BTreeSet<usize>, headings: &mut [OutlineHeading<'_>], all: &[NodeFinding<'_>]) -> BTreeSet<usize> {
    let mut homeless = BTreeSet::new();
    for at in left {
        let NodeFinding { node, finding, .. } = all[at];
        let last = |is_like: &dyn Fn(&NodeFinding<'_>) -> bool| {
            headings.iter().rposition(|heading| heading.own.iter().any(|other| is_like(&all[*other])))
        };
        let by_aspect = last(&|other| finding.aspect.is_some() && other.finding.aspect == finding.aspect);
        if let Some(home) = by_aspect.or_else(|| last(&|other| other.node.id == node.id)) {
            headings[home].own.insert(at);
            // The section was written without it.
            headings[home].kept = None;
        } else {
            homeless.insert(at);
        }
    }
    homeless
}

fn is_written_from(section: &Section, found: &NodeFinding<'_>) -> bool {
    match section.findings.get(&found.node.id) {
        Some(numbers) => numbers.contains(&found.number),
        None => section.findings.is_empty() && section.nodes.contains(&found.node.id),
    }
}

fn written_sections(draft: &WholeDraft) -> impl Iterator<Item = &TitledDraft> {
    draft.sections.iter().filter(|section| !section.title.trim().is_empty() && !section.text.trim().is_empty())
}

/// Returns the sections of a report in one reply. Each is written from the findings whose quotes it is the first to
/// cite. Those that none cites are assigned by [`place`], or to the last section: the writer saw them and left them
/// out, so the next round must not take them for new.
fn sections_of(draft: &WholeDraft, all: &[NodeFinding<'_>]) -> Vec<Section> {
    let mut left: BTreeSet<usize> = (0..all.len()).collect();
    let mut headings = Vec::new();
    for section in written_sections(draft) {
        let cited: BTreeSet<_> = marks(&section.text).into_iter().map(|(_, id)| id).collect();
        let is_own = |at: &usize| all[*at].finding.evidence.iter().any(|id| cited.contains(id));
        let own: BTreeSet<_> = left.iter().copied().filter(is_own).collect();
        left = &left - &own;
        headings.push(OutlineHeading { title: one_line(&section.title), own, kept: None });
    }
    let homeless = place(left, &mut headings, all);
    add_to_last(homeless, &mut headings);
    let texts = written_sections(draft).map(|section| section.text.trim());
    headings.iter().zip(texts).map(|(heading, text)| heading.section(text, all)).collect()
}

/// Returns a section that lists its findings.
fn section_by_rules(heading: &OutlineHeading<'_>, all: &[NodeFinding<'_>]) -> Section {
    let findings = heading.findings(all);
    let lines: Vec<_> = findings.iter().map(|found| format!("- {}", one_line(&cited(found.finding)))).collect();
    Section { title: heading.title.clone(), text: lines.join("\n"), ..Section::default() }
}

/// Returns the nodes of findings, each once.
fn nodes_of<'a>(findings: impl IntoIterator<Item = NodeFinding<'a>>) -> Vec<&'a Node> {
    let mut nodes: Vec<&Node> = findings.into_iter().map(|found| found.node).collect();
    // Findings are in the order of their nodes.
    nodes.dedup_by(|a, b| a.id == b.id);
    nodes
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

/// Returns the sections as the prompt of each lists them: with the sub-questions they answer, except those that all of
/// them answer.
fn titles(outline: &[OutlineHeading<'_>], all: &[NodeFinding<'_>]) -> String {
    let nodes: Vec<_> = outline.iter().map(|heading| nodes_of(heading.findings(all))).collect();
    let is_shared = |node: &Node| nodes.iter().all(|own| own.iter().any(|other| other.id == node.id));
    let line = |(at, heading): (usize, &OutlineHeading<'_>)| {
        let own = nodes[at].iter().filter(|node| !is_shared(node));
        let questions: Vec<_> = own.map(|node| one_line(node.question.as_str())).collect();
        let of = if questions.is_empty() { String::new() } else { format!(" ({})", questions.join(" · ")) };
        format!("{}. {}{of}", at + 1, heading.title)
    };
    outline.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the findings of a node, one per line, with their numbers among all and their aspects. `texts` are those of all
/// findings.
fn listed(node: &Node, all: &[NodeFinding<'_>], texts: &[String]) -> String {
    let own = (1_usize..).zip(all).zip(texts).filter(|((_, found), _)| found.node.id == node.id);
    let lines = own.map(|((number, found), text)| match &found.finding.aspect {
        Some(aspect) => format!("{number}. ({aspect}) {text}"),
        None => format!("{number}. {text}"),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the title of a section with the numbers of its findings, as the prompt of the next outline lists it.
fn titled(section: &Section, all: &[NodeFinding<'_>]) -> String {
    let own = (1_usize..).zip(all).filter(|(_, found)| is_written_from(section, found));
    let numbers: Vec<_> = own.map(|(number, _)| number.to_string()).collect();
    format!("{} (findings {})", section.title, numbers.join(", "))
}

fn node_text(node: &Node, branch: &Branch) -> String {
    format!("{} asked: {}\n{}", node.id, node.question, claims_text(&branch.report))
}

/// Returns quotes as prompts of the writer show them: whole.
fn shown(quotes: &[&Evidence]) -> Vec<PromptText> {
    shown_quotes(quotes, |quote| &quote.quote)
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
