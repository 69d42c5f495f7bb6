//! Writes the brief with a model: the task in full and the aspects an answer must cover.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::prompt::Template;
use super::question::{Aspect, Brief, MAX_ASPECTS, MAX_TASK_CHARACTERS, Mode, Question};
use super::rules::brief_by_rules;
use crate::base::line::one_line;
use crate::base::outbound::Outbound;
use crate::base::step::Step;
use crate::llm::call::{CallKey, Caller};
use crate::llm::structured::{StructuredError, structured, structured_checked};

/// Whether the user should be asked something before the work begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) struct Clarification {
    /// Whether to ask.
    pub(crate) need: bool,
    /// The one question; empty where there is no need.
    #[serde(default)]
    pub(crate) question: String,
    /// What was understood.
    #[serde(default)]
    pub(crate) verification: String,
}

/// Input of [`written`], or with outbound text of [`PublicBrief::write`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BriefRequest<'a, Q = String> {
    /// The user's question.
    pub(crate) question: &'a Question,
    /// The user's answer to the clarifying question, and a note on the run that is followed.
    pub(crate) answer: Option<&'a Q>,
    /// Requested depth. With [`Mode::Auto`], the model decides.
    pub(crate) mode: Mode,
    /// Topics the caller requires. They become the first aspects, verbatim.
    pub(crate) required: &'a [Q],
    /// Today's date, if the prompt should contain it.
    pub(crate) today: Option<&'a str>,
}

impl<Q: AsRef<str>> BriefRequest<'_, Q> {
    fn required_texts(&self) -> Vec<String> {
        self.required.iter().map(|text| text.as_ref().to_owned()).collect()
    }
}

/// A brief as a model says it.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct BriefDraft {
    /// The question in full, complete in itself.
    task: String,
    /// What an answer must cover.
    aspects: Vec<String>,
    /// How much work it is.
    mode: ModeDraft,
}

/// How much work it is.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ModeDraft {
    Quick,
    Iterative,
    Deep,
}

/// Decides whether the question needs clarification.
///
/// # Errors
///
/// Returns an error if the model gives no usable reply. Callers then continue without asking.
pub(crate) async fn clarify(caller: &dyn Caller, question: &Question) -> Result<Clarification, StructuredError> {
    let prompt = Template::Clarify.prompt(caller, json!({"question": question}));
    let found: Clarification = structured(caller, &CallKey::of_run(Step::Clarify), &prompt, "clarification").await?;
    let question = one_line(&found.question);
    // Without a question there is nothing to ask the user.
    Ok(Clarification {
        need: found.need && !question.is_empty(),
        question,
        verification: one_line(&found.verification),
    })
}

/// A brief made from the user's words alone, so that tasks for the web can be worded from it.
///
/// It is read back from journals, which anything may have written, so its texts are no [`Outbound`]:
/// `run/outward/origin.rs` makes them outbound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicBrief(Brief);

impl PublicBrief {
    /// Writes it with a model; by rules without one, or if its reply is of no use.
    pub(crate) async fn write(
        caller: Option<&dyn Caller>,
        key: &CallKey,
        request: BriefRequest<'_, Outbound>,
    ) -> Result<Self, StructuredError> {
        written(caller, key, request).await.map(Self)
    }

    pub(crate) fn as_brief(&self) -> &Brief {
        &self.0
    }
}

/// Writes the brief with a model; by rules without one, or if its reply is of no use.
pub(crate) async fn written<Q: AsRef<str> + Serialize + Sync>(
    caller: Option<&dyn Caller>,
    key: &CallKey,
    request: BriefRequest<'_, Q>,
) -> Result<Brief, StructuredError> {
    let by_rules = || brief_by_rules(request.question, request.mode, &request.required_texts());
    let Some(caller) = caller else { return Ok(by_rules()) };
    match brief(caller, key, &request).await {
        // A brief by rules covers the question as it is worded; without one there would be no run.
        Err(StructuredError::Invalid { .. }) => Ok(by_rules()),
        done => done,
    }
}

async fn brief<Q: AsRef<str> + Serialize + Sync>(
    caller: &dyn Caller,
    key: &CallKey,
    request: &BriefRequest<'_, Q>,
) -> Result<Brief, StructuredError> {
    let BriefRequest { question, answer, required, today, .. } = *request;
    let context = json!({
        "question": question, "answer": answer, "required": required, "today": today, "most_aspects": MAX_ASPECTS,
    });
    let check = |draft: &BriefDraft| {
        let is_empty = draft.aspects.iter().all(|aspect| !has_words(aspect)) && required.is_empty();
        match () {
            () if !has_words(&draft.task) => Err("`task` is empty".to_owned()),
            () if is_empty => Err("`aspects` is empty: name at least one".to_owned()),
            () if draft.aspects.len() > MAX_ASPECTS => {
                Err(format!("`aspects` has {} entries (at most {MAX_ASPECTS})", draft.aspects.len()))
            }
            () => Ok(()),
        }
    };
    let prompt = Template::Brief.prompt(caller, context);
    let draft: BriefDraft = structured_checked(caller, key, &prompt, "brief", check).await?;
    Ok(Brief {
        question: question.clone(),
        task: short(&draft.task, MAX_TASK_CHARACTERS),
        aspects: Aspect::list(&request.required_texts(), &draft.aspects),
        mode: match (request.mode, draft.mode) {
            (Mode::Auto, ModeDraft::Quick) => Mode::Quick,
            (Mode::Auto, ModeDraft::Iterative) => Mode::Iterative,
            (Mode::Auto, ModeDraft::Deep) => Mode::Deep,
            (mode, _) => mode,
        },
    })
}

fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn short(text: &str, most: usize) -> String {
    one_line(text).chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::Scripted;

    fn request<'a>(question: &'a Question, required: &'a [String]) -> BriefRequest<'a> {
        BriefRequest { question, answer: None, mode: Mode::Auto, required, today: None }
    }

    #[tokio::test]
    async fn clarification_without_a_question_is_not_needed() {
        let question = "How does it cope?".parse().unwrap();
        let caller = Scripted::replying(json!({"need": true, "question": "Cope\nwith what?", "verification": "load"}));
        assert_eq!(clarify(&caller, &question).await.unwrap().question, "Cope with what?");
        let caller = Scripted::replying(json!({"need": true, "question": " ", "verification": ""}));
        assert!(!clarify(&caller, &question).await.unwrap().need);
    }

    #[tokio::test]
    async fn required_aspects_come_first_and_duplicates_are_dropped() {
        let question = "Compare A and B".parse().unwrap();
        let required = ["cost".to_owned(), "speed".to_owned()];
        let caller =
            Scripted::replying(json!({"task": "Compare A and B.", "aspects": ["Speed", "safety"], "mode": "deep"}));
        let brief = brief(&caller, &CallKey::new("brief"), &request(&question, &required)).await.unwrap();
        let shown: Vec<_> = brief.aspects.iter().map(|aspect| format!("{}: {}", aspect.id, aspect.text)).collect();
        assert_eq!(shown, ["a1: cost", "a2: speed", "a3: safety"]);
        assert_eq!(brief.mode, Mode::Deep);
    }

    #[tokio::test]
    async fn mode_chosen_by_the_user_is_kept() {
        let question = "What is A?".parse().unwrap();
        let caller = Scripted::replying(json!({"task": "What is A?", "aspects": ["A"], "mode": "deep"}));
        let request = BriefRequest { mode: Mode::Quick, ..request(&question, &[]) };
        assert_eq!(brief(&caller, &CallKey::new("brief"), &request).await.unwrap().mode, Mode::Quick);
    }

    #[tokio::test]
    async fn brief_without_aspects_is_repaired_and_then_refused() {
        let question = "What is A?".parse().unwrap();
        let caller = Scripted::replying(json!({"task": "What is A?", "aspects": [" "], "mode": "quick"}));
        let error = brief(&caller, &CallKey::new("brief"), &request(&question, &[])).await.unwrap_err();
        assert_eq!(error, StructuredError::Invalid { complaint: "`aspects` is empty: name at least one".into() });
        assert_eq!(caller.keys(), ["brief", "brief/repair", "brief/small"]);
    }
}
