//! Calls of models, stored before they are sent.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use rusqlite::{OptionalExtension, Row, named_params, params_from_iter};
use serde::{Deserialize, Serialize};

use super::{Journal, JournalError, Json, LockedRun, Plain, optional_json, plain, read_failed, rows};
use crate::base::clock::Moment;
use crate::base::id::{ContentHash, JobId, RunId, as_text, as_word};
use crate::llm::call::CallKey;
use crate::llm::message::{ParseRoleError, Reply, Role, Usage};
use crate::run::budget::{CallCost, Purpose};
use crate::source::Label;

/// A call before it is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Call {
    /// Its name within the run.
    #[serde(flatten)]
    pub(crate) key: CallKey,
    #[serde(flatten)]
    pub(crate) kind: CallKind,
    pub(crate) model: String,
    pub(crate) request_hash: ContentHash,
    /// Which part of the budget pays for it.
    pub(crate) purpose: Purpose,
    /// Text that its prompt may contain: `public`, only text that may leave; `internal`, any.
    pub(crate) label: Label,
    /// Worst-case cost in billionths of a dollar; `None` if the price is not known.
    pub(crate) worst_cost: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "KindColumns")]
pub enum CallKind {
    /// The reply of a model.
    Prompt(PromptCall),
    /// A background job. Its tokens are neither counted beforehand nor limited.
    Job,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptCall {
    pub(crate) role: Role,
    /// Whether the budget was tight when the call was made, which the prompt mentions.
    pub(crate) is_tight: bool,
    /// Tokens of the prompt as counted here.
    pub(crate) counted_tokens: u64,
    /// The most tokens it can cost.
    pub(crate) worst_tokens: u64,
}

/// A provider of background jobs, by the name it has in settings and journals. Matches on it are exhaustive, so a new
/// variant does not compile until [`crate::run::background`] knows how to reach it and how to read its replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderKind {
    /// The Responses API of `OpenAI`, or a server that speaks it.
    #[default]
    OpenAi,
    /// Answers from memory.
    #[cfg(test)]
    Scripted,
}

impl ProviderKind {
    /// The values of the setting `deep_research.provider`. A match, so that a new variant does not compile until this list
    /// was looked at.
    pub(crate) const NAMES: &'static [&'static str] = match Self::OpenAi {
        Self::OpenAi => &["openai"],
        // No setting names it.
        #[cfg(test)]
        Self::Scripted => &[],
    };
}

/// Where a background job was started, and can be polled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobEndpoint {
    pub(crate) address: String,
    /// Fingerprint of its key, which differs from job to job; `None` if no key was sent.
    pub(crate) key: Option<String>,
    /// Whether the job was offered no tool server of the user. Not stored by older versions: their jobs may have been.
    #[serde(default)]
    pub(crate) is_web_only: bool,
}

/// Recipient of a call: a model in one of its roles, or the provider of background jobs. Stored in the column `role`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) enum CallRole {
    Model(Role),
    /// A background job.
    Researcher,
}

impl CallRole {
    const RESEARCHER: &'static str = "researcher";
}

impl fmt::Display for CallRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(role) => role.fmt(f),
            Self::Researcher => f.write_str(Self::RESEARCHER),
        }
    }
}

impl FromStr for CallRole {
    type Err = ParseRoleError;

    fn from_str(word: &str) -> Result<Self, ParseRoleError> {
        if word == Self::RESEARCHER { Ok(Self::Researcher) } else { word.parse().map(Self::Model) }
    }
}

as_text!(CallRole);

#[derive(Serialize)]
struct KindColumns {
    role: CallRole,
    is_tight: bool,
    counted_tokens: u64,
    worst_tokens: u64,
}

impl From<CallKind> for KindColumns {
    fn from(kind: CallKind) -> Self {
        let role = kind.role();
        match kind {
            CallKind::Prompt(PromptCall { is_tight, counted_tokens, worst_tokens, .. }) => {
                Self { role, is_tight, counted_tokens, worst_tokens }
            }
            CallKind::Job => Self { role, is_tight: false, counted_tokens: 0, worst_tokens: 0 },
        }
    }
}

impl CallKind {
    fn role(self) -> CallRole {
        match self {
            Self::Prompt(prompt) => CallRole::Model(prompt.role),
            Self::Job => CallRole::Researcher,
        }
    }
}

/// Displays the role of the model, or `researcher` for a job.
impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.role().fmt(f)
    }
}

impl Call {
    /// Returns whether it starts a background job.
    pub(crate) fn is_job(&self) -> bool {
        self.kind == CallKind::Job
    }

    /// Returns the prompt that it sends; `None` for a job.
    pub(crate) fn prompt(&self) -> Option<&PromptCall> {
        match &self.kind {
            CallKind::Prompt(prompt) => Some(prompt),
            CallKind::Job => None,
        }
    }

    pub(crate) fn worst(&self) -> CallCost {
        CallCost { cost_nanos: self.worst_cost, tokens: self.prompt().map_or(0, |prompt| prompt.worst_tokens) }
    }
}

/// State of a call.
///
/// ```text
/// Sent ─┬▶ Replied
///       ├▶ Failed
///       ├▶ Unknown
///       └▶ Lost
///
/// any ─▶ Damaged, by `dr doctor --repair`
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CallState {
    /// In flight, or its process died before the outcome was stored. Charged at its worst case.
    Sent,
    /// The reply is stored.
    Replied,
    /// There is no reply, and nothing was charged.
    Failed,
    /// The request may have been carried out. Charged at its worst case.
    Unknown,
    /// There will be no reply. Charged at its cost, or at the worst case if that is unknown.
    Lost,
    /// There was a reply, and the journal has lost it. That of a background job can be fetched again.
    Damaged,
}

as_word!(CallState);

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CallRow {
    /// Its number among the calls of all runs.
    pub(crate) id: i64,
    #[serde(flatten)]
    pub(crate) call: Call,
    pub(crate) sent_at: Moment,
    #[serde(flatten)]
    pub(crate) outcome: StoredOutcome,
    #[serde(flatten)]
    pub(crate) job: Option<StartedJob>,
}

/// Everything stored of the outcome of a call, by its [`CallState`]. Costs are in billionths of a dollar; `None` if they are
/// not known. A repair may have lost times and usage, and lists leave out the reply.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub(crate) enum StoredOutcome {
    Sent,
    Replied { ended_at: Option<Moment>, reply: Option<Box<Reply>>, usage: Option<Usage>, cost: Option<u64> },
    Failed { ended_at: Option<Moment>, error: String },
    Unknown { ended_at: Option<Moment>, error: String },
    Lost { ended_at: Option<Moment>, error: String, cost: Option<u64> },
    Damaged { ended_at: Option<Moment>, usage: Option<Usage>, cost: Option<u64> },
}

/// The background job that a call has started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StartedJob {
    #[serde(rename = "job")]
    pub(crate) id: JobId,
    /// `None` in journals of versions that had a single provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<ProviderKind>,
    /// `None` in journals of versions that did not store it. Not exported: it is of use to the owner of the key alone.
    #[serde(skip)]
    pub(crate) endpoint: Option<JobEndpoint>,
}

/// A stored call can be used like the call itself.
impl Deref for CallRow {
    type Target = Call;

    fn deref(&self) -> &Call {
        &self.call
    }
}

impl CallRow {
    pub(crate) fn state(&self) -> CallState {
        match self.outcome {
            StoredOutcome::Sent => CallState::Sent,
            StoredOutcome::Replied { .. } => CallState::Replied,
            StoredOutcome::Failed { .. } => CallState::Failed,
            StoredOutcome::Unknown { .. } => CallState::Unknown,
            StoredOutcome::Lost { .. } => CallState::Lost,
            StoredOutcome::Damaged { .. } => CallState::Damaged,
        }
    }

    /// Returns the reply, if there is one and it was read.
    pub(crate) fn reply(&self) -> Option<&Reply> {
        match &self.outcome {
            StoredOutcome::Replied { reply, .. } => reply.as_deref(),
            _ => None,
        }
    }

    /// Returns the tokens that were charged, if they are known.
    pub(crate) fn usage(&self) -> Option<Usage> {
        match self.outcome {
            StoredOutcome::Replied { usage, .. } | StoredOutcome::Damaged { usage, .. } => usage,
            // Their tokens count at the worst case, if they count.
            StoredOutcome::Sent
            | StoredOutcome::Failed { .. }
            | StoredOutcome::Unknown { .. }
            | StoredOutcome::Lost { .. } => None,
        }
    }

    /// Returns the charge for this call in billionths of a dollar, or `None` if its price is not known.
    pub(crate) fn charged_cost(&self) -> Option<u64> {
        match self.outcome {
            StoredOutcome::Sent | StoredOutcome::Unknown { .. } => self.worst_cost,
            // The cost is in a column of its own, which may outlast a damaged reply.
            StoredOutcome::Lost { cost, .. } | StoredOutcome::Damaged { cost, .. } => cost.or(self.worst_cost),
            StoredOutcome::Replied { cost, .. } => cost,
            StoredOutcome::Failed { .. } => Some(0),
        }
    }

    /// Returns whether the outcome is unknown, so that the worst case stays charged.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state(), CallState::Sent | CallState::Unknown)
    }

    /// Returns the background job that this call has started, if it is in flight or its reply is lost: its report can
    /// be fetched from the provider again.
    pub(crate) fn job_to_poll(&self) -> Option<&StartedJob> {
        self.job.as_ref().filter(|_| matches!(self.state(), CallState::Sent | CallState::Damaged))
    }
}

impl LockedRun {
    /// Stores a call that is about to be sent; returns its number.
    pub(in crate::run) async fn begin_call(&self, call: &Call, at: Moment) -> Result<i64, JournalError> {
        let call = call.clone();
        let KindColumns { role, is_tight, counted_tokens, worst_tokens } = call.kind.into();
        self.write(move |connection, run| {
            connection.execute(
                "INSERT INTO calls (run, key, node, role, model, request_hash, purpose, label, is_tight, counted_tokens, \
                 worst_tokens, worst_cost, sent_at, outcome) VALUES (:run, :key, :node, :role, :model, :request_hash, \
                 :purpose, :label, :is_tight, :counted_tokens, :worst_tokens, :worst_cost, :sent_at, :outcome)",
                named_params! {
                    ":run": run.as_str(),
                    ":key": call.key.as_str(),
                    ":node": Plain(call.key.node()),
                    ":role": Plain(role),
                    ":model": call.model,
                    ":request_hash": call.request_hash.as_str(),
                    ":purpose": Plain(call.purpose),
                    ":label": Plain(call.label),
                    ":is_tight": is_tight,
                    ":counted_tokens": Plain(counted_tokens),
                    ":worst_tokens": Plain(worst_tokens),
                    ":worst_cost": Plain(call.worst_cost),
                    ":sent_at": Plain(at),
                    ":outcome": Plain(CallState::Sent),
                },
            )?;
            Ok(connection.last_insert_rowid())
        })
        .await
    }

    /// Stores how a call of this run ended. `from` is the state it leaves: [`CallState::Sent`], or
    /// [`CallState::Damaged`] if its job was polled again for a lost reply. Only the ledger calls this, see
    /// [`crate::run::ledger`].
    ///
    /// # Errors
    ///
    /// Returns [`JournalError::Ended`] if the call is in another state: it ends once.
    pub(in crate::run) async fn end_call(
        &self,
        id: i64,
        from: CallState,
        outcome: StoredOutcome,
    ) -> Result<(), JournalError> {
        if !matches!(from, CallState::Sent | CallState::Damaged) {
            // An end in one of the others would pass the condition below a second time.
            return Err(JournalError::Ended { call: id });
        }
        let (state, ended_at, error, cost, reply, usage) = match outcome {
            StoredOutcome::Replied { ended_at, reply, usage, cost } => {
                (CallState::Replied, ended_at, None, cost, reply, usage)
            }
            StoredOutcome::Failed { ended_at, error } => {
                (CallState::Failed, ended_at, Some(error), Some(0), None, None)
            }
            // Without a cost, the worst case in the row stays charged.
            StoredOutcome::Unknown { ended_at, error } => (CallState::Unknown, ended_at, Some(error), None, None, None),
            StoredOutcome::Lost { ended_at, error, cost } => (CallState::Lost, ended_at, Some(error), cost, None, None),
            // Neither ends a call.
            StoredOutcome::Sent | StoredOutcome::Damaged { .. } => return Err(JournalError::Ended { call: id }),
        };
        let write = self.write(move |connection, run| {
            connection.execute(
                // A call that was damaged keeps its cost if no other is known.
                // By run, too: ids are unique over all runs, but the lock covers one run only.
                "UPDATE calls SET outcome = :outcome, ended_at = :ended_at, reply = :reply, error = :error, \
                 usage = :usage, cost = coalesce(:cost, cost) WHERE id = :id AND run = :run AND outcome = :from",
                named_params! {
                    ":id": id,
                    ":run": run.as_str(),
                    ":from": Plain(from),
                    ":outcome": Plain(state),
                    ":ended_at": Plain(ended_at),
                    ":usage": usage.map(Json),
                    ":reply": reply.map(Json),
                    ":error": error,
                    ":cost": Plain(cost),
                },
            )
        });
        if write.await? == 1 { Ok(()) } else { Err(JournalError::Ended { call: id }) }
    }

    /// Stores that a call has a reply that cannot be read, so that it can end once more.
    ///
    /// # Errors
    ///
    /// Returns [`JournalError::Ended`] if its reply can be read, or if it ended in another way.
    pub(in crate::run) async fn lose_reply(&self, id: i64) -> Result<(), JournalError> {
        let write = self.write(move |connection, run| {
            let sql = "SELECT reply FROM calls WHERE id = ?1 AND run = ?2 AND outcome = ?3";
            let values = (id, run.as_str(), Plain(CallState::Replied));
            let reply = connection.query_row(sql, values, |row| optional_json::<Reply>(row, "reply"));
            // Read here and not by the caller, whose row may be from before the job was polled again.
            match reply.optional() {
                Ok(None | Some(Some(_))) => Ok(0),
                // If it is the database that fails, so does this.
                Ok(Some(None)) | Err(_) => {
                    let sql = "UPDATE calls SET outcome = ?2 WHERE id = ?1";
                    connection.execute(sql, (id, Plain(CallState::Damaged)))
                }
            }
        });
        if write.await? == 1 { Ok(()) } else { Err(JournalError::Ended { call: id }) }
    }

    /// Stores the id of the background job that a call started, and where it can be polled. Must come before the first poll:
    /// a crash after it finds the job again.
    ///
    /// # Errors
    ///
    /// Returns [`JournalError::Ended`] if the call is not in flight.
    pub(in crate::run) async fn attach_job(
        &self,
        id: i64,
        job: &JobId,
        provider: ProviderKind,
        endpoint: JobEndpoint,
    ) -> Result<(), JournalError> {
        let job = job.clone();
        let write = self.write(move |connection, run| {
            let sql = "UPDATE calls SET job = :job, provider = :provider, endpoint = :endpoint \
                       WHERE id = :id AND run = :run AND outcome = :sent";
            let values = named_params! {
                ":id": id,
                ":run": run.as_str(),
                ":job": Plain(job),
                ":provider": Plain(provider),
                ":endpoint": Json(endpoint),
                ":sent": Plain(CallState::Sent),
            };
            connection.execute(sql, values)
        });
        if write.await? == 1 { Ok(()) } else { Err(JournalError::Ended { call: id }) }
    }
}

impl Journal {
    /// Returns a call of any run, and the run; `None` if there is none, or if it cannot be read.
    pub(crate) async fn call(&self, call: i64) -> Result<Option<(RunId, CallRow)>, JournalError> {
        let sql = format!("SELECT run, {CALL_COLUMNS}, reply FROM calls WHERE id = ?1");
        let read = self.read(move |connection| {
            let read = |row: &Row<'_>| Ok((plain(row, "run")?, call_row(row)?));
            connection.query_row(&sql, [call], read).optional().map_err(read_failed)
        });
        match read.await {
            Err(error) if error.is_damage() => Ok(None),
            read => read,
        }
    }

    /// Returns the calls of a run that made this request under any key, oldest first.
    pub(crate) async fn calls_for(&self, run: &RunId, request: &ContentHash) -> Result<Vec<CallRow>, JournalError> {
        let params = [run.to_string(), request.as_str().to_owned()];
        self.calls_where("reply", "run = ?1 AND request_hash = ?2", params).await
    }

    /// Returns all calls of a run, oldest first, without their replies.
    pub(crate) async fn calls_in_short(&self, run: &RunId) -> Result<Vec<CallRow>, JournalError> {
        self.calls_where("NULL AS reply", "run = ?1", [run.to_string()]).await
    }

    /// Returns all calls of a run, oldest first.
    pub(crate) async fn calls(&self, run: &RunId) -> Result<Vec<CallRow>, JournalError> {
        self.calls_where("reply", "run = ?1", [run.to_string()]).await
    }

    /// Returns the calls of a run that started, or tried to start, a background job, oldest first.
    pub(crate) async fn job_calls(&self, run: &RunId) -> Result<Vec<CallRow>, JournalError> {
        let params = [run.to_string(), CallRole::Researcher.to_string()];
        self.calls_where("reply", "run = ?1 AND role = ?2", params).await
    }

    async fn calls_where<const N: usize>(
        &self,
        reply: &'static str,
        condition: &'static str,
        params: [String; N],
    ) -> Result<Vec<CallRow>, JournalError> {
        // Only literals are put into the statement; values are bound.
        let sql = format!("SELECT {CALL_COLUMNS}, {reply} FROM calls WHERE {condition} ORDER BY id");
        self.read(move |connection| rows(connection, &sql, params_from_iter(params), call_row)).await
    }
}

/// All columns but the reply, which lists leave out: it is the bulk of the table.
pub(super) const CALL_COLUMNS: &str = "id, key, node, role, model, request_hash, purpose, label, is_tight, counted_tokens, \
                                       worst_tokens, worst_cost, sent_at, outcome, ended_at, error, usage, cost, job, provider, \
                                       endpoint";

pub(super) fn call_row(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        id: row.get("id")?,
        call: Call {
            key: CallKey::stored(plain(row, "node")?, row.get("key")?),
            kind: match plain(row, "role")? {
                CallRole::Model(role) => CallKind::Prompt(PromptCall {
                    role,
                    is_tight: row.get("is_tight")?,
                    counted_tokens: plain(row, "counted_tokens")?,
                    worst_tokens: plain(row, "worst_tokens")?,
                }),
                CallRole::Researcher => CallKind::Job,
            },
            model: row.get("model")?,
            request_hash: plain(row, "request_hash")?,
            purpose: plain(row, "purpose")?,
            label: plain(row, "label")?,
            worst_cost: plain(row, "worst_cost")?,
        },
        sent_at: plain(row, "sent_at")?,
        outcome: outcome(row)?,
        job: match plain(row, "job")? {
            Some(id) => {
                Some(StartedJob { id, provider: plain(row, "provider")?, endpoint: optional_json(row, "endpoint")? })
            }
            None => None,
        },
    })
}

fn outcome(row: &Row<'_>) -> rusqlite::Result<StoredOutcome> {
    let (ended_at, usage, cost) = (plain(row, "ended_at")?, optional_json(row, "usage")?, plain(row, "cost")?);
    let error = row.get::<_, Option<String>>("error")?.unwrap_or_default();
    Ok(match plain(row, "outcome")? {
        CallState::Sent => StoredOutcome::Sent,
        CallState::Replied => StoredOutcome::Replied { ended_at, reply: optional_json(row, "reply")?, usage, cost },
        CallState::Failed => StoredOutcome::Failed { ended_at, error },
        CallState::Unknown => StoredOutcome::Unknown { ended_at, error },
        CallState::Lost => StoredOutcome::Lost { ended_at, error, cost },
        CallState::Damaged => StoredOutcome::Damaged { ended_at, usage, cost },
    })
}
