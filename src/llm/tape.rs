//! Exchanges with models on record: written as they happen, and played back without a network.
//!
//! A tape is a file of JSON lines, one exchange each. An exchange is found again by everything the request says: a
//! prompt that has changed fails, and says where, instead of passing quietly. Failures are not recorded.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::message::{Message, Prompt, Reply, Usage};
use super::model::{Model, ModelError};
use crate::base::line::one_line;

/// Letters of a message that are shown around a difference.
const SHOWN: usize = 80;

/// A tape could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// The file.
    #[error("failed to {action} tape `{path}`")]
    File {
        /// `create` or `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is no exchange.
    #[error("line {line} of tape `{path}` is no exchange")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// A request and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Exchange {
    hash: String,
    model: String,
    prompt: Prompt,
    reply: Reply,
}

/// Returns what tells one request from all others.
fn hash(model: &str, prompt: &Prompt) -> String {
    let request = serde_json::to_vec(&(model, prompt)).expect("a prompt is text, numbers and JSON");
    blake3::hash(&request).to_hex().to_string()
}

/// A record of exchanges, shared by the models that are on it.
pub struct Tape(Mode);

enum Mode {
    Recording(Mutex<File>),
    Playing(Mutex<Recorded>),
}

/// Exchanges that were read, in their order.
struct Recorded {
    exchanges: Vec<Exchange>,
    /// Replies by the hash of their request.
    replies: HashMap<String, VecDeque<usize>>,
}

impl Tape {
    /// Starts a new tape.
    ///
    /// # Errors
    ///
    /// Returns an error where the file is there already: a recording is paid for, and not written over.
    pub fn record(path: &Path) -> Result<Arc<Self>, TapeError> {
        let file = File::create_new(path);
        let failed = |source| TapeError::File { action: "create", path: path.to_path_buf(), source };
        Ok(Arc::new(Self(Mode::Recording(Mutex::new(file.map_err(failed)?)))))
    }

    /// Reads a tape to be played back.
    pub fn play(path: &Path) -> Result<Arc<Self>, TapeError> {
        let failed = |source| TapeError::File { action: "read", path: path.to_path_buf(), source };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let exchanges = lines
            .map(|(at, line)| {
                let failed = |source| TapeError::Line { path: path.to_path_buf(), line: at + 1, source };
                serde_json::from_str(line).map_err(failed)
            })
            .collect::<Result<Vec<Exchange>, _>>()?;
        let mut replies: HashMap<String, VecDeque<usize>> = HashMap::new();
        for (at, exchange) in exchanges.iter().enumerate() {
            // What a person edited is found by what it says now.
            replies.entry(hash(&exchange.model, &exchange.prompt)).or_default().push_back(at);
        }
        Ok(Arc::new(Self(Mode::Playing(Mutex::new(Recorded { exchanges, replies })))))
    }

    /// Puts a model on the tape: what it says is recorded, or comes from the record and `model` is sent nothing.
    pub fn model(self: &Arc<Self>, model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(TapedModel { model, tape: Arc::clone(self) })
    }
}

struct TapedModel {
    model: Arc<dyn Model>,
    tape: Arc<Tape>,
}

impl TapedModel {
    async fn exchange(&self, prompt: &Prompt) -> Result<Reply, ModelError> {
        match &self.tape.0 {
            Mode::Playing(recorded) => {
                recorded.lock().unwrap_or_else(PoisonError::into_inner).reply(self.model.name(), prompt)
            }
            Mode::Recording(file) => {
                let reply = self.model.send(prompt).await?;
                let model = self.model.name().to_owned();
                let exchange =
                    Exchange { hash: hash(&model, prompt), model, prompt: prompt.clone(), reply: reply.clone() };
                let failed = |error: std::io::Error| ModelError::Unknown { reason: format!("not recorded: {error}") };
                let line = serde_json::to_string(&exchange).map_err(|error| failed(error.into()))?;
                // One write, so that calls side by side do not get into each other's lines.
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
                Ok(reply)
            }
        }
    }
}

impl Model for TapedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn window_tokens(&self) -> u64 {
        self.model.window_tokens()
    }

    fn count_input(&self, prompt: &Prompt) -> u64 {
        self.model.count_input(prompt)
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        self.model.max_output(prompt)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        self.model.cost_nanos(usage)
    }

    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(self.exchange(prompt))
    }
}

impl Recorded {
    /// Returns the reply to a request; when it was asked several times, the replies in their order, and then the last.
    fn reply(&mut self, model: &str, prompt: &Prompt) -> Result<Reply, ModelError> {
        let Some(queue) = self.replies.get_mut(&hash(model, prompt)) else {
            return Err(ModelError::Permanent { reason: self.difference(model, prompt) });
        };
        let at = if queue.len() > 1 { queue.pop_front() } else { queue.front().copied() };
        at.and_then(|at| self.exchanges.get(at))
            .map(|exchange| exchange.reply.clone())
            .ok_or_else(|| ModelError::Permanent { reason: "the tape has no reply left".into() })
    }

    /// Says where a prompt differs from the recorded one that is most like it.
    fn difference(&self, model: &str, prompt: &Prompt) -> String {
        let role = prompt.role;
        let alike = |exchange: &&Exchange| {
            let pairs = exchange.prompt.messages.iter().zip(&prompt.messages);
            let letters: usize = pairs.map(|(recorded, asked)| common_prefix(&recorded.text, &asked.text)).sum();
            (exchange.prompt.role == role, exchange.model == model, letters)
        };
        let Some(nearest) = self.exchanges.iter().max_by_key(alike).filter(|nearest| nearest.prompt.role == role)
        else {
            return format!("the tape has no exchange of the {role}");
        };
        let recorded = &nearest.prompt;
        let count = recorded.messages.len().max(prompt.messages.len());
        let first = (0..count).find(|at| recorded.messages.get(*at) != prompt.messages.get(*at));
        let what = match first {
            Some(at) => message_difference(at + 1, recorded.messages.get(at), prompt.messages.get(at)),
            None if nearest.model != model => format!("it is for `{model}`, and was recorded for `{}`", nearest.model),
            None if recorded.schema != prompt.schema => "the schema of the reply differs".to_owned(),
            None => "a limit or the temperature differs".to_owned(),
        };
        format!("the tape has no reply to this prompt of the {role}: {what}")
    }
}

fn message_difference(number: usize, recorded: Option<&Message>, asked: Option<&Message>) -> String {
    let (Some(recorded), Some(asked)) = (recorded, asked) else {
        let which = if recorded.is_some() { "recorded" } else { "new" };
        return format!("message {number} is only in the {which} one");
    };
    if recorded.speaker != asked.speaker {
        return format!("message {number} has another speaker");
    }
    let from = common_prefix(&recorded.text, &asked.text);
    let shown = |text: &str| one_line(&text[from..].chars().take(SHOWN).collect::<String>());
    format!("message {number} has `{}` where `{}` was recorded", shown(&asked.text), shown(&recorded.text))
}

/// Returns how many bytes two texts begin with alike; a boundary of letters in both.
fn common_prefix(a: &str, b: &str) -> usize {
    let pairs = a.chars().zip(b.chars());
    pairs.take_while(|(a, b)| a == b).map(|(letter, _)| letter.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::message::Role;
    use super::*;

    /// Replies with the number of the request.
    struct Counting(Mutex<u32>);

    impl Model for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        fn window_tokens(&self) -> u64 {
            1_000
        }

        fn count_input(&self, _: &Prompt) -> u64 {
            10
        }

        fn max_output(&self, prompt: &Prompt) -> u64 {
            prompt.max_output_tokens.into()
        }

        fn cost_nanos(&self, _: &Usage) -> Option<u64> {
            Some(0)
        }

        fn send<'a>(&'a self, _: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
            let mut count = self.0.lock().unwrap();
            *count += 1;
            let reply = Reply { text: count.to_string(), usage: None, cut_off: false, raw: json!({ "n": *count }) };
            Box::pin(async move { Ok(reply) })
        }
    }

    fn prompt(text: &str) -> Prompt {
        Prompt::new(Role::Worker, "Be brief.", text, 100)
    }

    async fn recorded(prompts: &[Prompt]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tape.jsonl");
        let model = Tape::record(&path).unwrap().model(Arc::new(Counting(Mutex::new(0))));
        for prompt in prompts {
            model.send(prompt).await.unwrap();
        }
        (folder, path)
    }

    #[tokio::test]
    async fn recording_is_played_back_in_order_and_the_model_is_sent_nothing() {
        let (_folder, path) = recorded(&[prompt("a"), prompt("b"), prompt("a")]).await;
        let model = Arc::new(Counting(Mutex::new(0)));
        let played = Tape::play(&path).unwrap().model(Arc::clone(&model) as Arc<dyn Model>);
        let mut texts = Vec::new();
        for text in ["b", "a", "a", "a"] {
            texts.push(played.send(&prompt(text)).await.unwrap().text);
        }
        assert_eq!(texts, ["2", "1", "3", "3"]);
        assert_eq!(*model.0.lock().unwrap(), 0);
        assert_eq!(played.send(&prompt("b")).await.unwrap().raw, json!({ "n": 2 }));
    }

    #[tokio::test]
    async fn changed_prompt_fails_and_says_where() {
        let (_folder, path) = recorded(&[prompt("Which valve waters bed 7?"), prompt("Something else")]).await;
        let played = Tape::play(&path).unwrap().model(Arc::new(Counting(Mutex::new(0))));
        let error = played.send(&prompt("Which valve waters bed 8?")).await.unwrap_err();
        let ModelError::Permanent { reason } = error else { panic!("{error:?}") };
        let expected = "the tape has no reply to this prompt of the worker: message 2 has `8?` where `7?` was recorded";
        assert_eq!(reason, expected);

        let other_limit = Prompt { max_output_tokens: 99, ..prompt("Something else") };
        let error = played.send(&other_limit).await.unwrap_err().to_string();
        assert!(error.ends_with("a limit or the temperature differs"), "{error}");
        let other_role = Prompt { role: Role::Judge, ..prompt("Something else") };
        let error = played.send(&other_role).await.unwrap_err().to_string();
        assert!(error.ends_with("no exchange of the judge"), "{error}");
    }

    #[tokio::test]
    async fn recording_is_not_written_over_and_a_broken_line_is_named() {
        let (_folder, path) = recorded(&[prompt("a")]).await;
        assert!(matches!(Tape::record(&path), Err(TapeError::File { action: "create", .. })));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}\n{{\n")).unwrap();
        assert!(matches!(Tape::play(&path), Err(TapeError::Line { line: 3, .. })));
    }
}
