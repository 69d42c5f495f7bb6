//! Works on a node without a model: one search, answered with units quoted from the sources.

use std::collections::BTreeMap;

use futures::future::{BoxFuture, join_all};

use super::branch::{Branch, BranchReport, BranchStop, Finding};
use super::evidence::{Evidence, line_range};
use super::node::NodeId;
use super::pick::{
    CLEAR_LEAD, DocumentHits, Picked, Picks, asks_for_value, asks_whether, closest, is_definition, is_overview,
    lacks_value, on_term,
};
use super::question::{AspectId, Question};
use crate::base::line::counted;
use crate::base::word::count_words;
use crate::source::{Documents, Found, Lack, Passage, Place, ProperName, Source, SourceError, SourceFile, Support};

/// Number of search results read per node.
const PASSAGES_PER_NODE: usize = 12;

/// Number of hits scanned for passages on the term being defined, and how many of them are read.
const PASSAGES_OF_DEFINITION: usize = 60;
const ON_TERM: usize = 3;

/// Number of web pages fetched per node.
const PAGES_PER_NODE: usize = 3;

/// Longest file that is read whole, in bytes. Only the passages of a longer one are read.
const MAX_DOCUMENT: usize = 1 << 20;

/// Number of headings above which a passage of nothing else is taken for code with comments.
const MAX_HEADINGS: usize = 3;

/// Number of passages per node whose documents are read: as many as the weights of [`pick`](super::pick) were fitted
/// on.
const MAX_PASSAGES: usize = 10;

/// Picks the units that answer a question. CPU-bound: implementations run it on a blocking thread.
pub trait Pick: Send + Sync {
    /// Returns units with quotes numbered from 1 and not yet checked. `names` are the documents that the question names.
    fn pick<'a>(
        &'a self,
        node: &'a NodeId,
        question: &'a Question,
        names: &'a [ProperName],
        readings: &'a [DocumentHits],
    ) -> BoxFuture<'a, Result<Picks, SourceError>>;
}

/// Answers a node by one search of one source. `query` is the search query; `question`, the same request worded as a
/// question, decides which units are picked. Web results are snippets only, so the best pages are fetched first. All
/// findings serve `aspect`.
///
/// # Errors
///
/// Returns an error if the source fails. An empty result is not an error: the branch then ends with
/// [`BranchStop::NoEvidence`].
pub(crate) async fn extract<Q: ?Sized + AsRef<str> + Sync>(
    node: &NodeId,
    aspect: Option<&AspectId>,
    question: &Question,
    query: &Q,
    source: &dyn Source<Q>,
    picker: &dyn Pick,
) -> Result<Branch, SourceError> {
    let (found, Picks { units: picked, others }) = search_and_pick(node, question, query, source, picker).await?;
    let lead = picked.first().and_then(|best| if best.is_decisive { Some(1.0) } else { best.lead });
    let mut notes = found.notes;
    notes.extend(if found.support == Support::Strong { found.unknown } else { found.doubts });
    let mut findings = Vec::new();
    let mut evidence = Vec::new();
    let mut lost = 0;
    // A passage that may not answer has no sentence that does, and a further one competes with the best.
    let has_emphasis = found.support == Support::Strong;
    for (at, Picked { text, mut quotes, document, is_clear, .. }) in picked.into_iter().enumerate() {
        for quote in &mut quotes {
            check(quote, &document, source, &mut notes).await;
        }
        // Dropped as a whole: half a list, or a table without its header, would mean something else.
        if quotes.iter().all(|quote| quote.checked) {
            let ids = quotes.iter().map(|quote| quote.id.clone()).collect();
            let is_emphasised = is_clear && has_emphasis && at == 0;
            findings.push(Finding { text, evidence: ids, aspect: aspect.cloned(), is_emphasised });
            evidence.extend(quotes);
        } else {
            lost += 1;
        }
    }
    if lost > 0 {
        notes.push(format!("{} left out: not found in the source", counted(lost, "quote")));
    }
    let is_empty = evidence.is_empty();
    let report = BranchReport {
        summary: findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join(" "),
        confidence: confidence(lead, &evidence, found.support),
        open_questions: if is_empty { vec![question.to_string()] } else { Vec::new() },
        findings,
        output: None,
        stop_reason: if is_empty { BranchStop::NoEvidence } else { BranchStop::Done },
    };
    let hits = found.passages.into_iter().filter(|passage| !is_contents(&passage.text));
    let further = without_texts(others.into_iter().chain(hits).collect());
    let (support, reported, saw_internal) = (found.support, Vec::new(), false);
    Ok(Branch { report, evidence, further, support, notes, reported, saw_internal })
}

/// Searches, and picks the units that answer best. Picks nothing if the results do not support an answer.
pub(super) async fn search_and_pick<Q: ?Sized + Sync>(
    node: &NodeId,
    question: &Question,
    query: &Q,
    source: &dyn Source<Q>,
    picker: &dyn Pick,
) -> Result<(Found, Picks), SourceError> {
    let is_definition = is_definition(question);
    let limit = if is_definition { PASSAGES_OF_DEFINITION } else { PASSAGES_PER_NODE };
    let mut found = source.search(query, limit).await?;
    if is_definition {
        prefer_defining(&mut found.passages, question);
    }
    let picked = match found.support {
        Support::None => Picks::default(),
        Support::Weak | Support::Strong => {
            let passages = with_pages(&found.passages, source, &mut found.notes).await?;
            // The search has corrected misspelt words, so only the corrected ones occur in its hits.
            let corrected = found.corrected.as_deref().and_then(|text| text.parse().ok());
            let question = corrected.as_ref().unwrap_or(question);
            let Picks { units: picked, others } =
                picker.pick(node, question, &found.names, &readings(&passages, source).await).await?;
            let lacks = |lack| found.lacks == lack && !found.is_reranked;
            found.support = match is_said(&picked, question, &found) {
                _ if found.is_of_others => Support::Weak,
                // Little of the question is found, and the name it asks about is not.
                Some(false) | None if lacks(Lack::Name) && found.support == Support::Weak => Support::None,
                // On topic, but without the requested name or value: shown as the closest passages.
                _ if lacks(Lack::Name) || lacks(Lack::Target) || lacks_value(question, &found.names, &picked) => {
                    Support::Weak
                }
                // Notes that lack a word of a yes-or-no question would answer a different question.
                _ if lacks(Lack::Word) && asks_whether(question.as_str()) && !is_clear(&picked, question, &found) => {
                    Support::Weak
                }
                // The value would be that of something else.
                _ if lacks(Lack::Word) && asks_for_value(question) && is_far(&picked, &found.missing) => Support::Weak,
                // Support was judged by the first passages; the unit may be in a later one.
                Some(true) => Support::Strong,
                Some(false) => Support::Weak,
                None => found.support,
            };
            let units = match found.support {
                Support::None => Vec::new(),
                Support::Weak => closest(picked),
                Support::Strong => picked,
            };
            Picks { units, others }
        }
    };
    Ok((found, picked))
}

/// Promotes a few passages on the term being defined, each of another note, whatever their rank: a short name occurs in
/// many passages.
fn prefer_defining(passages: &mut Vec<Passage>, question: &Question) {
    let is_same = |a: &Passage, b: &Passage| a.place.is_same_document(&b.place);
    let (read, rest) = passages.split_at(passages.len().min(MAX_PASSAGES));
    let others: Vec<_> = rest.iter().filter(|own| !read.iter().any(|known| is_same(known, own))).collect();
    let mut promoted: Vec<Passage> = Vec::new();
    for passage in on_term(question, &others) {
        if promoted.len() < ON_TERM && !promoted.iter().any(|known| is_same(known, passage)) {
            promoted.push(passage.clone());
        }
    }
    passages.retain(|passage| !promoted.iter().any(|own| own.id == passage.id));
    let at = passages.len().min(MAX_PASSAGES - promoted.len());
    passages.splice(at..at, promoted);
    passages.truncate(PASSAGES_PER_NODE);
}

/// Returns whether the best unit answers, or any unit of an overview, which a heading with its subject supports as
/// well. `None` if the units do not tell, or if a reranker has judged.
fn is_said(picked: &[Picked], question: &Question, found: &Found) -> Option<bool> {
    let judged =
        |own: &Picked| found.odds.zip(own.matches).map(|(odds, matches)| odds.judge(matches) == Support::Strong);
    let says_most = |own: &Picked| (own.says_most && !found.is_reranked).then_some(true);
    if is_overview(question) {
        return picked.iter().any(|own| says_most(own).or_else(|| judged(own)) == Some(true)).then_some(true);
    }
    let best = picked.first()?;
    let is_sure = best.is_decisive || (is_definition(question) && best.says_most);
    if is_sure && !found.is_reranked {
        return Some(true);
    }
    judged(best).or_else(|| says_most(best))
}

/// Returns whether the best unit answers clearly, as far as an embedder tells, and has all names of the question: what
/// it says of one product, it does not say of another.
fn is_clear(picked: &[Picked], question: &Question, found: &Found) -> bool {
    let Some(best) = picked.first() else { return false };
    let said = best.quotes.iter().map(|quote| format!("{} {}", quote.source.names(), quote.quote));
    let said = said.collect::<String>().to_lowercase();
    let is_name = |word: &&str| word.starts_with(char::is_uppercase);
    let bare = |word: &str| word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase();
    let mut names = question.as_str().split_whitespace().skip(1).filter(is_name).map(bare);
    found.odds.zip(best.matches).is_some_and(|(odds, matches)| odds.is_clear(matches))
        && names.all(|name| said.contains(&name))
}

/// Returns whether some word that no file has is far from everything in the best unit. If no embedder has compared them,
/// it is taken to be.
fn is_far(picked: &[Picked], missing: &[String]) -> bool {
    let is_same = |far: &str, word: &str| far.trim_matches(|letter: char| !letter.is_alphanumeric()) == word;
    let is_missing = |far: &String| missing.iter().any(|word| is_same(far, word));
    let far = picked.first().and_then(|best| best.far.as_ref());
    far.is_none_or(|far| far.iter().any(is_missing))
}

/// Returns the documents of the best passages, in order of their first passage. A document that has changed since it
/// was indexed, or that is very long, is read passage by passage.
async fn readings(passages: &[Passage], source: &dyn Documents) -> Vec<DocumentHits> {
    // The flag says whether the whole document is read.
    let mut readings: Vec<(bool, DocumentHits)> = Vec::new();
    for passage in passages.iter().take(MAX_PASSAGES) {
        let Place::Kb { line_start, line_end, collection, path, .. } = &passage.place else {
            let hits = vec![(0..passage.text.len(), passage.score)];
            readings.push((false, DocumentHits { document: passage.clone(), hits }));
            continue;
        };
        let is_same = |(is_whole, reading): &&mut (bool, DocumentHits)| match &reading.document.place {
            Place::Kb { collection: known, path: own, .. } => *is_whole && known == collection && own == path,
            Place::Web { .. } | Place::Mcp { .. } => false,
        };
        if let Some((_, reading)) = readings.iter_mut().find(is_same) {
            reading.hits.push((line_range(&reading.document.text, *line_start, *line_end), passage.score));
            continue;
        }
        readings.push(match source.read(&passage.place).await {
            SourceFile::AsIndexed(text) if text.len() <= MAX_DOCUMENT => {
                let hits = vec![(line_range(&text, *line_start, *line_end), passage.score)];
                let mut document = Passage { text, ..passage.clone() };
                if let Place::Kb { line_start, .. } = &mut document.place {
                    // The text is now the whole document, so quotes count lines from its first.
                    *line_start = 1;
                }
                (true, DocumentHits { document, hits })
            }
            SourceFile::AsIndexed(_) | SourceFile::Changed | SourceFile::Gone => {
                (false, DocumentHits { document: passage.clone(), hits: vec![(0..passage.text.len(), passage.score)] })
            }
        });
    }
    readings.into_iter().map(|(_, reading)| reading).collect()
}

/// Replaces the snippets of a search engine by the pages they point to. Snippets beyond [`PAGES_PER_NODE`] are dropped,
/// since a quote can be checked only against a fetched page.
async fn with_pages(
    passages: &[Passage],
    source: &dyn Documents,
    notes: &mut Vec<String>,
) -> Result<Vec<Passage>, SourceError> {
    let hits = passages.iter().filter(|passage| is_hit(passage)).take(PAGES_PER_NODE);
    let opened = join_all(hits.map(|hit| async move { (hit, source.open(&hit.id).await) })).await;
    let mut pages = BTreeMap::new();
    for (hit, page) in opened {
        match page {
            Ok(page) => drop(pages.insert(&hit.id, Passage { score: hit.score, ..page })),
            // A limit reached after a page was read costs only the remaining pages.
            Err(error @ SourceError::Stopped(_)) if error.ends_run() || pages.is_empty() => return Err(error),
            Err(error) => notes.push(format!("a page was not read: {error}")),
        }
    }
    let passage = |passage: &Passage| if is_hit(passage) { pages.remove(&passage.id) } else { Some(passage.clone()) };
    Ok(passages.iter().filter_map(passage).collect())
}

/// Returns whether a passage is a search engine's snippet of a page that was not fetched. Snippets are not evidence.
pub(crate) fn is_hit(passage: &Passage) -> bool {
    matches!(passage.place, Place::Web { content_hash: None, .. })
}

/// Checks a quote against the current document, and adds a note if the document changed since it was indexed.
pub(crate) async fn check(quote: &mut Evidence, passage: &Passage, source: &dyn Documents, notes: &mut Vec<String>) {
    let file = source.read(&quote.source).await;
    if let Place::Kb { path, .. } = &quote.source {
        notes.extend(SourceFile::note(&file, path).filter(|note| !notes.contains(note)));
    }
    quote.check(&file, &passage.text);
}

/// Returns whether a text has more than one link for four words, as a table of contents does.
pub(super) fn is_contents(text: &str) -> bool {
    text.matches("](").count() * 4 > count_words(text)
}

/// Returns whether a passage has more than a few headings and the header of a table. A passage from the middle of a
/// table has no header, and one of code may have comments that look like headings.
pub(super) fn has_text(text: &str) -> bool {
    let (headings, rest): (Vec<_>, Vec<_>) = text.lines().map(str::trim).partition(|line| line.starts_with('#'));
    let rest: Vec<_> = rest.into_iter().filter(|line| !line.is_empty()).collect();
    let is_header =
        matches!(rest.as_slice(), [_, marks] if marks.starts_with('|') && !marks.contains(char::is_alphanumeric));
    !(is_header || rest.is_empty()) || headings.len() > MAX_HEADINGS
}

/// Clears the full text of passages, which is needed only while quotes are checked, so that the journal does not store
/// it.
pub(crate) fn without_texts(passages: Vec<Passage>) -> Vec<Passage> {
    passages.into_iter().map(|passage| Passage { text: String::new(), ..passage }).collect()
}

/// Confidence from which the support of an answer made without a model is called strong: its first unit clearly leads.
/// `kb/concepts/support.md` has the figures.
pub(crate) const STRONG_CONFIDENCE: f32 = f32::midpoint(1.0, CLEAR_LEAD);

/// Returns the confidence in an answer: one half, and more the further its first unit leads; without a lead, the mean
/// score of the quotes. Halved if the support is weak. A decisive first unit counts as a full lead.
#[expect(clippy::cast_precision_loss, reason = "there are a handful of quotes")]
fn confidence(lead: Option<f32>, evidence: &[Evidence], support: Support) -> f32 {
    // `sum` of an empty iterator is -0.0, which would be printed with its sign.
    let sum = evidence.iter().map(|quote| quote.score).sum::<f32>() + 0.0;
    let mean = sum / evidence.len().max(1) as f32;
    let likely = lead.filter(|_| !evidence.is_empty()).map_or(mean, |lead| f32::midpoint(1.0, lead));
    if support == Support::Strong { likely } else { likely / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kb::search::UnitMatch;
    use crate::research::evidence::EvidenceId;
    use crate::research::scripted::ScriptedSource;
    use crate::source::Odds;

    /// Picks each document as one unit, with these values.
    #[derive(Default)]
    struct Whole {
        is_clear: bool,
        says_most: bool,
        is_decisive: bool,
        far: Option<Vec<String>>,
        matches: Option<UnitMatch>,
        lead: Option<f32>,
    }

    impl Pick for Whole {
        fn pick<'a>(
            &'a self,
            node: &'a NodeId,
            _: &'a Question,
            _: &'a [ProperName],
            readings: &'a [DocumentHits],
        ) -> BoxFuture<'a, Result<Picks, SourceError>> {
            let Self { is_clear, says_most, is_decisive, matches, lead, .. } = *self;
            let picked = (1..).zip(readings).map(|(number, DocumentHits { document, .. })| {
                let (document, text) = (document.clone(), document.text.clone());
                let quote = document.quote(0..text.len(), EvidenceId::new(node.clone(), number), 0.5);
                let own = 0..text.len();
                let far = self.far.clone();
                Picked {
                    text,
                    is_clear,
                    quotes: vec![quote],
                    own,
                    document,
                    says_most,
                    is_decisive,
                    far,
                    matches,
                    lead,
                }
            });
            let others = Vec::new();
            Box::pin(std::future::ready(Ok(Picks { units: picked.collect(), others })))
        }
    }

    /// Returns the support of a note for a question, if the search judges the note like this and as weak.
    async fn support(note: &str, judged: Found, question: &str, picker: Whole) -> Support {
        let source = ScriptedSource::of(&[("a.md", note)]).judging(Found { support: Support::Weak, ..judged });
        let question = question.parse().unwrap();
        search_and_pick(&NodeId::numbered(1), &question, "the", &source, &picker).await.unwrap().0.support
    }

    const VALVE: &str = "The valve opens at six.";
    const WHO: &str = "Who opens the valve at six?";

    #[tokio::test]
    async fn unit_that_says_most_of_what_is_asked_supports_an_answer_unless_a_reranker_has_judged() {
        let judged = async |says_most, is_reranked| {
            let picker = Whole { says_most, ..Whole::default() };
            support(VALVE, Found { is_reranked, ..Found::default() }, WHO, picker).await
        };
        assert_eq!(judged(true, false).await, Support::Strong);
        assert_eq!(judged(true, true).await, Support::Weak);
        assert_eq!(judged(false, false).await, Support::Weak);
    }

    #[tokio::test]
    async fn confidence_grows_with_the_lead_of_the_first_unit_and_is_halved_if_the_support_is_weak() {
        let confidence = async |lead, is_decisive, support| {
            let source = ScriptedSource::of(&[("a.md", VALVE)]).judging(Found { support, ..Found::default() });
            let picker = Whole { is_decisive, lead, ..Whole::default() };
            let question = WHO.parse().unwrap();
            let branch = extract(&NodeId::numbered(1), None, &question, "valve", &source, &picker).await.unwrap();
            format!("{:.2}", branch.report.confidence)
        };
        assert_eq!(confidence(Some(0.0), false, Support::Strong).await, "0.50");
        assert_eq!(confidence(Some(0.8), false, Support::Strong).await, "0.90");
        assert_eq!(confidence(Some(0.8), false, Support::Weak).await, "0.45");
        assert_eq!(confidence(Some(0.0), true, Support::Strong).await, "1.00", "a decisive sentence");
        assert_eq!(confidence(None, false, Support::Weak).await, "0.25", "half of the score of the quote");
    }

    #[tokio::test]
    async fn only_the_best_unit_of_a_supported_answer_has_an_emphasised_sentence() {
        let emphasised = async |support| {
            let judged = Found { support, ..Found::default() };
            let files = [("a.md", "The valve opens at six."), ("b.md", "The valve is red.")];
            let source = ScriptedSource::of(&files).judging(judged);
            let question = "When does the valve open?".parse().unwrap();
            let picker = Whole { is_clear: true, ..Whole::default() };
            let branch = extract(&NodeId::numbered(1), None, &question, "valve", &source, &picker).await.unwrap();
            branch.report.findings.iter().map(|finding| finding.is_emphasised).collect::<Vec<_>>()
        };
        assert_eq!(emphasised(Support::Strong).await, [true, false]);
        assert_eq!(emphasised(Support::Weak).await, [false, false]);
    }

    #[test]
    fn headings_and_the_header_of_a_table_are_no_text() {
        assert!(!has_text("# Valves\n\n## Opening\n\n| a | b |\n|---|---|\n") && !has_text(" "));
        for text in
            ["# Valves\n\nRed.", "| a | b |\n|---|---|\n| 1 | 2 |", "| 1 | 2 |\n| 3 | 4 |", "# a\n# b\n# c\n# d"]
        {
            assert!(has_text(text), "{text}");
        }
    }

    #[tokio::test]
    async fn overview_is_supported_by_a_heading_with_its_subject_or_by_a_unit() {
        let judged = async |says_most, whole| {
            let judged = Found { odds: Some(Odds(-4.0)), ..Found::default() };
            let picker = Whole { says_most, matches: Some(UnitMatch { whole, headings: 0.0 }), ..Whole::default() };
            support("The mill is old.", judged, "Tell me about the mill", picker).await
        };
        assert_eq!([judged(true, 0.2).await, judged(false, 0.9).await], [Support::Strong; 2]);
        assert_eq!(judged(false, 0.2).await, Support::Weak);
    }

    #[tokio::test]
    async fn question_whether_a_thing_is_so_or_about_a_name_is_not_answered_by_notes_without_a_word_for_it() {
        let judged = async |question: &str, lacks| {
            let picker = Whole { says_most: true, ..Whole::default() };
            support("No, the valve opens at six.", Found { lacks, ..Found::default() }, question, picker).await
        };
        assert_eq!(judged("Does the valve open by steam?", Lack::Word).await, Support::Weak);
        assert_eq!(judged("Does the valve open by steam?", Lack::None).await, Support::Strong);
        assert_eq!(judged("Can you tell when the valve opens?", Lack::Word).await, Support::Strong);
        assert_eq!(judged("Was öffnet das Ventil?", Lack::Word).await, Support::Strong);
        assert_eq!(judged("When does the valve open by steam?", Lack::Word).await, Support::Strong);
        assert_eq!(judged("How do I open the valve with steam?", Lack::Target).await, Support::Weak);
        let clear = async |question: &str, odds| {
            let matches = Some(UnitMatch { whole: 0.5, headings: 0.0 });
            let picker = Whole { says_most: true, matches, ..Whole::default() };
            let found = Found { lacks: Lack::Word, odds: Some(Odds(odds)), ..Found::default() };
            support("No, the valve opens at six.", found, question, picker).await
        };
        assert_eq!(clear("Does the valve open by steam?", -3.0).await, Support::Strong);
        assert_eq!(clear("Does the valve open by steam?", -4.0).await, Support::Weak, "not clear enough");
        assert_eq!(clear("Does the valve open by Azure?", -3.0).await, Support::Weak, "the name is not in the note");
        let counted = async |far: &[&str]| {
            let far = Some(far.iter().map(|word| (*word).to_owned()).collect());
            let picker = Whole { says_most: true, far, ..Whole::default() };
            let found = Found { lacks: Lack::Word, missing: vec!["steam".to_owned()], ..Found::default() };
            support("The valve opens six times.", found, "How many times does the steam valve open?", picker).await
        };
        assert_eq!(counted(&["daily"]).await, Support::Strong, "something else is far");
        assert_eq!(
            judged("How many times does the steam valve open?", Lack::Word).await,
            Support::Weak,
            "not compared"
        );
        assert_eq!([counted(&["steam"]).await, counted(&[]).await], [Support::Weak, Support::Strong]);
        assert_eq!(judged("When does the valve open in Leeds?", Lack::Name).await, Support::Weak);
        let found = Found { lacks: Lack::Name, ..Found::default() };
        let refused = support("The valve opens at six.", found, "What is red in Leeds?", Whole::default()).await;
        assert_eq!(refused, Support::None, "nothing but the search finds it near");
        let found = Found { lacks: Lack::Name, ..Found::default() };
        let refused = support("The valve is red.", found, "How many valves are in Leeds?", Whole::default()).await;
        assert_eq!(refused, Support::None, "the number is missing as well");
    }

    #[tokio::test]
    async fn unit_that_was_compared_with_the_question_decides_with_the_odds_of_the_search() {
        let judged = async |is_decisive, whole| {
            let judged = Found { odds: Some(Odds(-4.0)), ..Found::default() };
            let matches = Some(UnitMatch { whole, headings: 0.0 });
            support(VALVE, judged, WHO, Whole { says_most: true, is_decisive, matches, ..Whole::default() }).await
        };
        assert_eq!([judged(false, 0.9).await, judged(false, 0.2).await], [Support::Strong, Support::Weak]);
        assert_eq!(judged(true, 0.2).await, Support::Strong, "one sentence has the words of the question");
    }
}
