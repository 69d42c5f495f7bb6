//! Skims the knowledge base once, before work on the nodes: a model is shown the units most relevant to the question
//! and its aspects, and names the unit that answers each aspect. Quotes of earlier runs may be among the units.
//!
//! An answer counts only with a quote that its unit contains. The worker of the only node that serves the aspect begins
//! with that quote as a note, checked like its own; other workers are shown the unit and decide.

use std::collections::HashSet;

use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::cut::cut;
use super::evidence::Evidence;
use super::extract::{Pick, search_and_pick};
use super::locate::{locate, shown_at};
use super::node::NodeId;
use super::pick::{Picked, searched};
use super::prompt::{Template, ends_run, failure, fitted, room};
use super::question::{AspectId, Brief, Question};
use crate::base::step::Step;
use crate::base::word::WordSplitter;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::Prompt;
use crate::llm::structured::structured;
use crate::source::{Found, Passage, Source, SourceError, Support};

/// Number of units shown for the question and for each aspect, and bounds on their sum. Even the longest list of
/// aspects has one unit for each.
const UNITS_PER_QUESTION: usize = 2;
const FEWEST_UNITS: usize = 12;
const MAX_UNITS: usize = 30;

/// Maximum number of tokens of each unit shown.
const UNIT_TOKENS: u64 = 250;

/// Maximum number of answers asked for, in total and for each aspect. The model is told the latter.
const MAX_ANSWERS: usize = 30;
const ANSWERS_PER_ASPECT: usize = 3;

/// Tokens of an answer with a quote of two long sentences, and of a reply besides its answers. A reply that is cut short
/// is lost as a whole, so the limit must have room for the longest usual one.
const ANSWER_TOKENS: u32 = 120;
const REPLY_TOKENS: u32 = 600;

/// A passage that the model is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SkimPassage {
    pub(crate) passage: Passage,
    /// Note on the run that found it, for a quote of an earlier run.
    pub(crate) origin: Option<String>,
}

/// The result of a skim. Empty if no unit answers any aspect.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Skim {
    pub(crate) answers: Vec<Answer>,
}

/// A unit that answers an aspect.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) aspect: AspectId,
    pub(crate) unit: Passage,
    /// The words of the unit that answer.
    pub(crate) quote: String,
}

impl Skim {
    /// Returns the answers to some aspects, as far as they bear on a question. `others` are asked about the same
    /// aspects: the price of B is of no use to the node that asks what A costs.
    pub(crate) fn to(&self, aspects: &[AspectId], question: &Question, others: &[Question]) -> Vec<&Answer> {
        let splitter = WordSplitter::default();
        let stems = |text: &str| splitter.key_stems(text).into_iter().collect::<HashSet<_>>();
        let own = stems(question.as_str());
        let others: Vec<_> = others.iter().map(|other| stems(other.as_str())).collect();
        let bears_on_it = |answer: &&Answer| {
            let said = stems(&format!("{}\n{}", answer.unit.place.provenance(), answer.unit.text));
            let has_of = |a: &HashSet<String>, b: &HashSet<String>| a.difference(b).any(|stem| said.contains(stem));
            others.iter().all(|other| own.is_subset(other) || has_of(&own, other) || !has_of(other, &own))
        };
        self.answers.iter().filter(|answer| aspects.contains(&answer.aspect)).filter(bears_on_it).collect()
    }
}

/// The answers, as a model says them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct SkimDraft {
    /// One for each pair of an aspect and a passage that answers it.
    answers: Vec<AnswerDraft>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct AnswerDraft {
    /// The id of the aspect.
    aspect: String,
    /// The id of the passage that answers it.
    passage: String,
    /// The words that answer it, copied from the passage.
    quote: String,
}

/// Asks the model which unit answers which aspect. Returns `None` if there are no units or no usable reply: work on
/// the nodes then begins without a skim.
pub(crate) async fn skim(
    caller: &dyn Caller,
    brief: &Brief,
    units: Vec<SkimPassage>,
) -> Result<Option<Skim>, CallError> {
    if units.is_empty() {
        return Ok(None);
    }
    let (prompt, shown) = prompt(caller, brief, units);
    match structured::<SkimDraft>(caller, &CallKey::of_run(Step::Skim), &prompt, "skim").await.map_err(failure) {
        Ok(draft) => Ok(Some(checked(&draft, brief, &shown))),
        Err(error) if ends_run(&error) => Err(error),
        Err(error) => {
            tracing::debug!(%error, "knowledge base is not skimmed");
            Ok(None)
        }
    }
}

/// Returns the questions that are searched for: the user's own, and one for each aspect.
pub(crate) fn questions(brief: &Brief) -> Vec<Question> {
    let aspects = brief.aspects.iter().filter_map(|aspect| aspect.text.parse::<Question>().ok());
    let mut questions = vec![brief.question.clone()];
    questions.extend(aspects.filter(|aspect| *aspect != brief.question));
    questions
}

/// Returns the best units of a knowledge base for the question and each aspect: the best of each first, then the second
/// of each, and so on. `root` is the node that searches are recorded for.
pub(crate) async fn units(
    root: &NodeId,
    brief: &Brief,
    source: &dyn Source,
    picker: &dyn Pick,
) -> Result<Vec<SkimPassage>, CallError> {
    let questions = questions(brief);
    let searches = questions.iter().map(|question| search_and_pick(root, question, searched(question), source, picker));
    let mut found = Vec::new();
    // In the order of the questions, not of completion: the prompt must not depend on timing.
    for searched in join_all(searches).await {
        match searched {
            Ok((Found { support: Support::None, .. }, _)) => {}
            Ok((searched, picked)) => found.push(units_of(&searched, &picked.units)),
            Err(SourceError::Stopped(error)) if ends_run(&error) => return Err(error),
            // The workers search again and report the failure.
            Err(error) => tracing::debug!(%error, "knowledge base is not skimmed for a question"),
        }
    }
    let mut units: Vec<Passage> = Vec::new();
    for place in 0..found.iter().map(Vec::len).max().unwrap_or(0) {
        for unit in found.iter().filter_map(|own| own.get(place)) {
            // A unit may have been extended by the one before it.
            if !units.iter().any(|known| known.place.overlaps(&unit.place)) {
                units.push(unit.clone());
            }
        }
    }
    units.truncate((UNITS_PER_QUESTION * questions.len()).clamp(FEWEST_UNITS, MAX_UNITS));
    Ok(units.into_iter().map(|passage| SkimPassage { passage, origin: None }).collect())
}

/// Returns units as passages. Each has the id of the hit it stands in, which a worker can open.
fn units_of(found: &Found, picked: &[Picked]) -> Vec<Passage> {
    let unit = |picked: &Picked, quote: &Evidence| {
        let hit = found.passages.iter().find(|hit| hit.place.overlaps(&quote.source));
        let Passage { id, label, .. } = hit.unwrap_or(&picked.document).clone();
        let text = quote.quote.clone();
        Passage { id, place: quote.source.clone(), label, snippet: text.clone(), text, score: quote.score }
    };
    picked.iter().flat_map(|picked| picked.quotes.iter().map(move |quote| unit(picked, quote))).collect()
}

/// Returns the prompt and the units it has room for. The last units are dropped first.
fn prompt(caller: &dyn Caller, brief: &Brief, mut units: Vec<SkimPassage>) -> (Prompt, Vec<SkimPassage>) {
    let role = Template::Skim.role();
    let most_answers = answers_per_aspect(brief);
    let count = |text: &str| caller.count(role, text);
    let render = |units: &Vec<SkimPassage>| {
        let shown = units.iter().zip(1..).map(|(SkimPassage { passage, origin }, number)| {
            let origin = origin.as_ref().map(|origin| format!(" ({origin})")).unwrap_or_default();
            let text = cut(&passage.text, UNIT_TOKENS, &count);
            let text = format!("From: {}{origin}\n{text}", passage.place.provenance());
            json!({"id": format!("p{number}"), "text": text})
        });
        let passages: Vec<_> = shown.collect();
        let context = json!({
            "task": brief.task, "aspects": brief.aspects, "passages": passages, "most_answers": most_answers,
        });
        Template::Skim.prompt(caller, context)
    };
    let room = room::<SkimDraft>(caller, role);
    let mut prompt = fitted(caller, room, &mut units, render, |units| units.len() > 1 && units.pop().is_some());
    let most_tokens = reply_tokens(most_answers * brief.aspects.len());
    prompt.max_output_tokens = prompt.max_output_tokens.min(most_tokens);
    (prompt, units)
}

/// Returns the number of answers that are asked for each aspect.
fn answers_per_aspect(brief: &Brief) -> usize {
    (MAX_ANSWERS / brief.aspects.len().max(1)).clamp(1, ANSWERS_PER_ASPECT)
}

/// Returns the tokens that a reply with this many answers may have.
fn reply_tokens(answers: usize) -> u32 {
    u32::try_from(answers).unwrap_or(u32::MAX).saturating_mul(ANSWER_TOKENS).saturating_add(REPLY_TOKENS)
}

/// Returns the answers whose aspect, passage and quote exist, of each aspect as many as were asked for.
fn checked(draft: &SkimDraft, brief: &Brief, units: &[SkimPassage]) -> Skim {
    let answer = |answer: &AnswerDraft| {
        let unit = &units.get(shown_at(&answer.passage)?)?.passage;
        let aspect = AspectId::named(&answer.aspect);
        let range = locate(&unit.text, &answer.quote)?;
        brief.aspect(&aspect)?;
        Some(Answer { aspect, unit: unit.clone(), quote: unit.text[range].to_owned() })
    };
    let most = answers_per_aspect(brief);
    let mut answers: Vec<Answer> = Vec::new();
    for answer in draft.answers.iter().filter_map(answer) {
        if answers.iter().filter(|known| known.aspect == answer.aspect).count() < most {
            answers.push(answer);
        }
    }
    Skim { answers }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use serde_json::{Value, json};

    use super::*;
    use crate::llm::call::Limit;
    use crate::research::pick::{DocumentHits, Picks, pick};
    use crate::research::scripted::{Scripted, ScriptedSource, brief, broken};
    use crate::source::ProperName;

    struct ByWords;

    impl Pick for ByWords {
        fn pick<'a>(
            &'a self,
            node: &'a NodeId,
            question: &'a Question,
            names: &'a [ProperName],
            readings: &'a [DocumentHits],
        ) -> BoxFuture<'a, Result<Picks, SourceError>> {
            let picked = pick(node, question, names, readings, &WordSplitter::default(), None).unwrap();
            Box::pin(std::future::ready(Ok(picked)))
        }
    }

    const FILES: [(&str, &str); 2] = [
        ("locks.md", "The writer lock is a file that is held while writing."),
        ("cost.md", "It costs nine euros a year."),
    ];

    fn answer(aspect: &str, passage: &str, quote: &str) -> Value {
        json!({"aspect": aspect, "passage": passage, "quote": quote})
    }

    async fn skimmed(caller: &Scripted, source: &ScriptedSource, aspects: &[&str]) -> Result<Option<Skim>, CallError> {
        let brief = brief("What is the lock?", aspects);
        let units = units(&NodeId::numbered(1), &brief, source, &ByWords).await?;
        skim(caller, &brief, units).await
    }

    #[tokio::test]
    async fn answer_counts_only_with_words_of_its_passage_and_an_aspect_of_the_brief() {
        let reply = json!({"answers": [
            answer("a1", "p1", "a file that is held while writing"),
            answer("a1", "p1", "a file made of steel"),
            answer("a2", "p9", "It costs nine euros a year."),
            answer("a7", "p2", "It costs nine euros a year."),
        ]});
        let caller = Scripted::by_key(vec![("skim", reply)]);
        let found = skimmed(&caller, &ScriptedSource::of(&FILES), &["lock", "costs"]).await.unwrap().unwrap();
        let [answer] = found.answers.as_slice() else { panic!("{found:?}") };
        assert_eq!((answer.unit.id.as_str(), answer.aspect.to_string().as_str()), ("locks.md#0", "a1"));
        assert_eq!(answer.quote, "a file that is held while writing");
        let asked = |text: &str| text.parse::<Question>().unwrap();
        let (lock, key) = (asked("What is the lock?"), asked("What is the key?"));
        assert!(found.to(&[AspectId::numbered(2)], &lock, &[]).is_empty());
        let aspects = [AspectId::numbered(1)];
        let is_given = |question, others: &[Question]| !found.to(&aspects, question, others).is_empty();
        assert!(
            is_given(&lock, std::slice::from_ref(&key)) && is_given(&key, &[]),
            "what is found may serve any question"
        );
        assert!(!is_given(&key, std::slice::from_ref(&lock)), "another node asks what it answers");
        assert!(is_given(&key, &[asked("What is the door?")]));
        // The best unit for the second aspect is shown beside those for the question.
        assert!(caller.tasks()[0].contains("nine euros"), "{}", caller.tasks()[0]);
    }

    #[tokio::test]
    async fn first_answers_to_each_aspect_are_kept() {
        let mut answers = vec![answer("a1", "p1", "The writer lock is a file"); 4];
        answers.push(answer("a2", "p1", "a file that is held while writing"));
        let caller = Scripted::by_key(vec![("skim", json!({"answers": answers}))]);
        let found = skimmed(&caller, &ScriptedSource::of(&FILES[..1]), &["lock", "writing"]).await.unwrap().unwrap();
        let aspects: Vec<_> = found.answers.iter().map(|answer| answer.aspect.to_string()).collect();
        assert_eq!(aspects, ["a1", "a1", "a1", "a2"]);
    }

    #[tokio::test]
    async fn every_aspect_is_skimmed_and_the_reply_has_room_for_the_answers_to_all() {
        let names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"];
        let paths = ["1.md", "2.md", "3.md", "4.md", "5.md", "6.md", "7.md", "8.md"];
        let texts = names.map(|name| format!("The {name} valve is made of steel."));
        let files: Vec<_> = paths.into_iter().zip(texts.iter().map(String::as_str)).collect();
        let caller = Scripted::by_key(vec![("skim", json!({"answers": []}))]);
        let aspects = names.map(|name| format!("{name} valve"));
        let aspects: Vec<_> = aspects.iter().map(String::as_str).collect();
        skimmed(&caller, &ScriptedSource::of(&files), &aspects).await.unwrap();
        let (task, rules) = (caller.tasks()[0].clone(), caller.prompts()[0].messages[0].text.clone());
        for text in &texts {
            assert!(task.contains(text), "{text}: {task}");
        }
        assert!(rules.contains("at most 3 for each aspect"), "{rules}");
        let many = vec!["lock"; 20];
        for (brief, per_aspect) in [(brief("What?", &aspects), 3), (brief("What?", &many), 1)] {
            assert_eq!(answers_per_aspect(&brief), per_aspect);
            let all = u32::try_from(per_aspect * brief.aspects.len()).unwrap();
            assert!((100 * all..=4_500).contains(&reply_tokens(per_aspect * brief.aspects.len())));
        }
    }

    #[tokio::test]
    async fn unit_that_an_earlier_run_found_is_shown_with_its_origin() {
        let (brief, source) = (brief("What is the lock?", &["lock"]), ScriptedSource::of(&FILES));
        let mut units = units(&NodeId::numbered(1), &brief, &source, &ByWords).await.unwrap();
        units.truncate(1);
        units[0].origin = Some("found by run 7 on 2026-11-22".to_owned());
        let caller = Scripted::by_key(vec![("skim", json!({"answers": []}))]);
        skim(&caller, &brief, units).await.unwrap();
        let task = caller.tasks()[0].clone();
        assert!(task.contains("From: locks.md › locks (found by run 7 on 2026-11-22)\n"), "{task}");
    }

    #[tokio::test]
    async fn run_goes_on_without_a_skim_unless_it_has_to_stop() {
        let source = ScriptedSource::of(&FILES);
        let unusable = Scripted::replying(json!("no form"));
        assert_eq!(skimmed(&unusable, &source, &["lock"]).await, Ok(None));
        for (error, skim) in [
            (broken("down"), Ok(None)),
            (CallError::Limit(Limit::Cost), Ok(None)),
            (CallError::Cancelled, Err(CallError::Cancelled)),
        ] {
            let caller = Scripted::replying(json!({"answers": []})).failing_at(1, error);
            assert_eq!(skimmed(&caller, &source, &["lock"]).await, skim);
        }
        let caller = Scripted::replying(json!({"answers": []}));
        assert_eq!(skimmed(&caller, &ScriptedSource::of(&[]), &["lock"]).await, Ok(None));
        assert_eq!(skimmed(&caller, &ScriptedSource::of(&FILES).failing(), &["lock"]).await, Ok(None));
        assert!(caller.keys().is_empty(), "nothing is sent without units");
    }
}
