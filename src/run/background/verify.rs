//! Verifies the report of a background job: each cited sentence is a claim that its page confirms or does not.
//!
//! A provider's summary of a page is not evidence. It becomes evidence only when the page has been fetched and a
//! passage of it contains every number, every name and most words of the claim.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::jobs::Finished;
use super::report::JobReport;
use crate::base::line::{counted, one_line};
use crate::base::outbound::Outbound;
use crate::base::word::{WordSplitter, find_words};
use crate::research::branch::{Branch, BranchReport, BranchStop, Finding, Reported};
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::extract::{check, without_texts};
use crate::research::node::NodeId;
use crate::research::question::{Aspect, AspectId};
use crate::research::sentence::{Sentence, sentences, sentences_of_page};
use crate::source::{Documents, Passage, SourceError, Support};

/// Maximum number of claims verified per report.
const MAX_CLAIMS: usize = 30;

/// Maximum number of pages read to verify the claims of one report.
const MAX_PAGES: usize = 12;

/// Smallest share of a claim's key words that a passage must contain to confirm it.
const MIN_SHARED: f32 = 0.6;

/// Longest excerpt shown with a URL, in characters.
const MAX_SNIPPET: usize = 240;

/// Longest confirming passage, in sentences. In a longer one, words of unrelated sentences could add up to the claim.
const MAX_SENTENCES: usize = 3;

/// A fetched page and its sentences.
struct CitedPage {
    passage: Passage,
    sentences: Vec<PageSentence>,
}

/// A sentence of a page, tokenised once for all claims.
struct PageSentence {
    range: Range<usize>,
    stems: HashSet<String>,
    words: HashSet<String>,
    text: String,
}

impl PageSentence {
    /// Returns whether the sentence contains a number exactly, or a name as a whole word.
    fn has(&self, word: &str) -> bool {
        self.words.contains(word) || (!has_digit(word) && find_words(&self.text, word).is_some())
    }
}

/// A sentence of a report and the pages it cites.
struct Claim {
    text: String,
    pages: Vec<(String, String)>,
}

/// Fetches the first cited pages. Confirmed claims become findings, the others are listed as reported.
///
/// The question that stays open is the one the job was asked, since the planner may have worded its node after
/// retrieval.
///
/// # Errors
///
/// Returns an error if the run cannot continue. A page that cannot be fetched confirms nothing.
pub(crate) async fn branch_of(
    node: &NodeId,
    question: &Outbound,
    aspects: &[Aspect],
    job: &Finished,
    pages: Option<&dyn Documents>,
) -> Result<Branch, SourceError> {
    let report = job.report();
    let claims = claims(report);
    let urls: Vec<_> = claims.iter().flat_map(|claim| claim.pages.iter().map(|(url, _)| url.clone())).collect();
    let (read, mut notes) = read(&urls, pages).await?;
    let mut branch = Verified { node, aspects, evidence: Vec::new(), findings: Vec::new(), reported: Vec::new() };
    for claim in claims {
        branch.take(claim, &read, pages, &mut notes).await;
    }
    let Verified { evidence, findings, reported, .. } = branch;
    if !reported.is_empty() {
        notes.push(format!(
            "{} of Deep Research not confirmed by a fetched page; listed separately as unchecked",
            counted(reported.len(), "statement")
        ));
    }
    if let Some(limit) = &report.incomplete {
        notes.push(format!(
            "Deep Research stopped before it was done ({limit}); its report on `{question}` is incomplete"
        ));
    }
    let all = findings.len() + reported.len();
    #[expect(clippy::cast_precision_loss, reason = "a report has a handful of claims")]
    let confirmed = findings.len() as f32 / all.max(1) as f32;
    // Sources bear out at most so much of a report; of one that was cut short, half.
    let confidence = confirmed * if report.incomplete.is_some() { 0.4 } else { 0.8 };
    let is_empty = findings.is_empty();
    let is_open = is_empty || report.incomplete.is_some();
    Ok(Branch {
        report: BranchReport {
            summary: findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join(" "),
            findings,
            confidence,
            open_questions: if is_open { vec![question.to_string()] } else { Vec::new() },
            output: None,
            stop_reason: match &report.incomplete {
                _ if is_empty => BranchStop::NoEvidence,
                Some(_) => BranchStop::BudgetExceeded,
                None => BranchStop::Done,
            },
        },
        evidence,
        further: without_texts(
            read.into_values().map(|page| Passage { snippet: beginning(&page.passage.text), ..page.passage }).collect(),
        ),
        support: if is_empty { Support::None } else { Support::Strong },
        notes,
        reported,
        saw_internal: job.saw_internal(),
    })
}

/// Results of the claims verified so far.
struct Verified<'a> {
    node: &'a NodeId,
    aspects: &'a [Aspect],
    evidence: Vec<Evidence>,
    findings: Vec<Finding>,
    reported: Vec<Reported>,
}

impl Verified<'_> {
    async fn take(
        &mut self,
        claim: Claim,
        read: &BTreeMap<String, CitedPage>,
        pages: Option<&dyn Documents>,
        notes: &mut Vec<String>,
    ) {
        for (url, _) in &claim.pages {
            let (Some(page), Some(source)) = (read.get(url), pages) else { continue };
            let Some(range) = borne_out(&claim.text, &page.sentences) else { continue };
            let number = u32::try_from(self.evidence.len() + 1).unwrap_or(u32::MAX);
            let id = EvidenceId::new(self.node.clone(), number);
            let mut quote = page.passage.quote(range, id, 0.8);
            check(&mut quote, &page.passage, source, notes).await;
            if quote.checked {
                let aspect = self.aspect_of(&claim.text);
                self.findings.push(Finding {
                    text: claim.text,
                    evidence: vec![quote.id.clone()],
                    aspect,
                    is_emphasised: false,
                });
                self.evidence.push(quote);
                return;
            }
        }
        // No page bears it out, or none was read: named as reported, with the first page.
        if let Some((url, title)) = claim.pages.into_iter().next() {
            self.reported.push(Reported { text: claim.text, url, title });
        }
    }

    /// Returns the aspect that shares most words with a claim.
    fn aspect_of(&self, claim: &str) -> Option<AspectId> {
        let splitter = WordSplitter::default();
        let said: HashSet<_> = splitter.key_stems(claim).into_iter().collect();
        let shared =
            |aspect: &&Aspect| splitter.key_stems(&aspect.text).iter().filter(|stem| said.contains(*stem)).count();
        // `max_by_key` returns the last of equals, so the first aspect wins.
        let best = self.aspects.iter().rev().max_by_key(shared)?;
        Some(best.id.clone())
    }
}

/// Fetches each page once and notes failures.
async fn read(
    urls: &[String],
    pages: Option<&dyn Documents>,
) -> Result<(BTreeMap<String, CitedPage>, Vec<String>), SourceError> {
    let (mut read, mut notes, mut tried) = (BTreeMap::new(), Vec::new(), HashSet::new());
    let Some(pages) = pages else { return Ok((read, notes)) };
    for url in urls {
        if tried.len() < MAX_PAGES && tried.insert(url.as_str()) {
            match pages.open(url).await {
                Ok(passage) => {
                    let sentences = said(&passage.text);
                    read.insert(url.clone(), CitedPage { passage, sentences });
                }
                // Stopped before the first page was read: passed on, so that the node can be resumed with more time.
                Err(error @ SourceError::Stopped(_)) if error.ends_run() || read.is_empty() => return Err(error),
                Err(error) => notes.push(format!("a page cited by Deep Research was not read: {error}")),
            }
        }
    }
    Ok((read, notes))
}

/// Returns the start of a page as an excerpt.
fn beginning(text: &str) -> String {
    let line = one_line(text);
    let end = line.char_indices().nth(MAX_SNIPPET).map_or(line.len(), |(end, _)| end);
    line[..end].to_owned()
}

/// Returns the sentences of a report that cite pages, without their citation marks.
fn claims(report: &JobReport) -> Vec<Claim> {
    let mut text = report.text.clone().into_bytes();
    for span in report.citations.iter().filter_map(|citation| citation.span.clone()) {
        // Blanked and not cut out, so that the places of the other citations stay right.
        text[span].fill(b' ');
    }
    // Spans start and end at character boundaries, so the text stays valid UTF-8.
    let text = String::from_utf8(text).unwrap_or_else(|_| report.text.clone());
    let sentences = sentences(&text);
    let mut claims: BTreeMap<usize, Claim> = BTreeMap::new();
    for citation in &report.citations {
        // Without a span, it is not known what the page is cited for.
        let Some(span) = &citation.span else { continue };
        // A citation mark is inside its sentence or directly behind it.
        let Some(place) = sentences.iter().rposition(|sentence| sentence.range.start <= span.start) else { continue };
        // A mark may be blanked without the brackets around it.
        let said = one_line(sentences[place].plain.trim_end_matches(['(', ')', '[', ']', ' ']));
        let claim = claims.entry(place).or_insert_with(|| Claim { text: said, pages: Vec::new() });
        let page = (citation.url.clone(), one_line(&citation.title));
        if !claim.pages.contains(&page) {
            claim.pages.push(page);
        }
    }
    claims.into_values().filter(|claim| !claim.text.is_empty()).take(MAX_CLAIMS).collect()
}

/// Returns the shortest range of a page that confirms a claim.
fn borne_out(claim: &str, page: &[PageSentence]) -> Option<Range<usize>> {
    let stems = WordSplitter::default().key_stems(claim);
    let needed = exact_words(claim);
    // Shortest first: the quote has no sentence that it does not need.
    let windows = (1..=MAX_SENTENCES).flat_map(|length| page.windows(length));
    let says = |window: &&[PageSentence]| {
        let shared = stems.iter().filter(|stem| window.iter().any(|said| said.stems.contains(*stem))).count();
        #[expect(clippy::cast_precision_loss, reason = "a sentence has a handful of words")]
        let share = shared as f32 / stems.len().max(1) as f32;
        share >= MIN_SHARED && needed.iter().all(|word| window.iter().any(|said| said.has(word)))
    };
    windows.into_iter().find(says).map(|window| window[0].range.start..window[window.len() - 1].range.end)
}

fn said(page: &str) -> Vec<PageSentence> {
    let splitter = WordSplitter::default();
    let said = |sentence: Sentence| PageSentence {
        range: sentence.range,
        stems: splitter.stems(&sentence.plain),
        words: words(&sentence.plain).map(str::to_lowercase).collect(),
        text: sentence.plain.to_lowercase(),
    };
    sentences_of_page(page).into_iter().map(said).collect()
}

/// Returns the numbers and names of a text in lower case. A name is a capitalised word that is not the first one.
fn exact_words(text: &str) -> HashSet<String> {
    let is_exact = |(place, word): &(usize, &str)| {
        has_digit(word) || (*place > 0 && word.chars().next().is_some_and(char::is_uppercase))
    };
    words(text).enumerate().filter(is_exact).map(|(_, word)| word.to_lowercase()).collect()
}

/// Returns the words of a text. A number includes its decimal point and percent sign.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| letter.is_whitespace() || "()[]{},;:\"“”".contains(letter));
    let words = words.map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '%'));
    words.filter(|word| !word.is_empty())
}

fn has_digit(word: &str) -> bool {
    word.chars().any(char::is_numeric)
}

#[cfg(test)]
mod tests {
    use super::super::report::JobCitation;
    use super::*;

    #[tokio::test]
    async fn open_question_of_a_job_has_the_outward_wording() {
        let asked = Outbound::fixed("How do others run projects?");
        let job = Finished::of(JobReport::default(), false);
        let branch = branch_of(&NodeId::numbered(5), &asked, &[], &job, None).await.unwrap();
        assert_eq!(branch.report.open_questions, ["How do others run projects?"]);
    }

    #[test]
    fn passage_confirms_a_claim_only_with_its_numbers_and_names() {
        let page = "Tea came late. In 2021 the Ministry of Water counted 412 wells in Arland. More will follow.";
        let said = |claim: &str| borne_out(claim, &super::said(page)).map(|range| &page[range]);
        assert_eq!(
            said("The Ministry counted 412 wells in Arland in 2021."),
            Some("In 2021 the Ministry of Water counted 412 wells in Arland.")
        );
        assert_eq!(said("The Ministry counted 413 wells in Arland in 2021."), None);
        assert_eq!(said("The Ministry counted 12 wells in Arland in 2021."), None, "part of a number is another one");
        assert_eq!(said("The Ministry counted 412 wells in Borland in 2021."), None);
        assert_eq!(said("Wells in Arland are deep, dry and mostly abandoned by their owners."), None);
    }

    #[test]
    fn cited_sentence_is_a_claim_without_its_mark() {
        let text = "Über Tee: Arland has 412 wells ([ministry](https://a.example/w)). Nobody says more.";
        let start = text.find("([").unwrap();
        let end = text.find("). N").unwrap() + 1;
        let citation = JobCitation { url: "https://a.example/w".into(), title: "Wells".into(), span: Some(start..end) };
        let report = JobReport { text: text.into(), citations: vec![citation], ..JobReport::default() };
        let claims = claims(&report);
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].text, "Über Tee: Arland has 412 wells .");
        assert_eq!(claims[0].pages, [("https://a.example/w".to_owned(), "Wells".to_owned())]);
    }
}
