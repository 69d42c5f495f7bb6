//! Every operation of `dr` as a method: index, watch, search, get, open, ask, plan, resume, replay, recall, verify,
//! show, export, eval, doctor.
//!
//! An engine holds the index and the resolved settings. It is independent of its caller: no terminal, no flags, no exit
//! codes. Every surface (the command line, MCP, the page and its API) is built on these methods and on the types
//! re-exported here. Below them, a surface uses `render`, which formats results, and the helpers of `base`; the command
//! line also opens `traces`. `layer_tests.rs` enforces this.
//!
//! # Where to look
//!
//! - [`AskRequest`] is the request for a run. `setup` turns it into the settings the run records
//!   ([`RunSettings`](crate::run::event::RunSettings)) and the resources it works with
//!   ([`Resources`](crate::run::orchestrator::Resources)).
//! - [`RunEvent`] reports the progress of a run; `stored` reads runs from disk.

mod request;
mod error;
mod observer;
mod opened;
mod stored;
mod audience;
mod search;
mod indexing;
mod pull;
mod watch;
mod extraction;
mod passage;
mod place;
mod links;
mod neighbourhood;
mod setup;
mod recall;
mod verify;
mod before;
mod instead;
mod run;
mod form;
mod status;
mod background;
mod service;
mod contents;
mod quoted;
mod models;
mod names;
mod doctor;
mod model_checks;
mod outside_checks;
mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use self::audience::Audience;
pub(crate) use self::background::WatchedRun;
pub(crate) use self::contents::{CollectionEntry, document_address};
pub(crate) use self::doctor::{CheckStatus, Checkup, ExplainedSetting};
pub(crate) use self::error::{EngineError, ErrorKind};
pub(crate) use self::extraction::{answers_extraction, extract_document};
pub(crate) use self::form::{QuestionForm, ResumeForm};
pub use self::indexing::IndexRequest;
pub(crate) use self::links::{Backlink, BrokenLink, DocumentLinks, LinkCheck, LinkEntry, LinkState, NoteName};
pub(crate) use self::models::{ModelEntry, ModelList, ModelUse, Reembedding};
pub(crate) use self::neighbourhood::Neighbourhood;
pub(crate) use self::observer::{Doing, LINE_CHARACTERS, Observer, Progress, RunEvent, event_line};
pub(crate) use self::passage::{DOCUMENTS, Excerpt, Extent, ParseSelectorError, Selector};
pub(crate) use self::place::FilePlace;
pub(crate) use self::pull::Pulled;
pub(crate) use self::quoted::Quoted;
pub(crate) use self::recall::{EntrySource, FileState, FoundBefore};
pub(crate) use self::request::{Amounts, AskRequest, RequestError};
pub(crate) use self::run::{Planned, ResumeRequest};
pub(crate) use self::search::{SearchRequest, Searched};
pub(crate) use self::servers::{AcceptedTool, AcceptedTools};
pub(crate) use self::service::Service;
#[cfg(test)]
pub(crate) use self::status::{EventEntry, NodeStanding};
pub(crate) use self::status::{RunStatus, RunView, Standing};
pub use self::stored::report_of;
pub(crate) use self::stored::{Asked, RunDetails, RunGroup, RunSummary, StoredRuns};
pub(crate) use self::verify::{CitationState, VerifiedCitation, VerifiedReport, VerifyRequest};
pub(crate) use self::watch::{IndexWatch, WatchEvent, WatchRequest};
pub use crate::config::Flags;
pub(crate) use crate::config::{Trustable, bounds, dollars, duration};
pub(crate) use crate::kb::embed::{Downloading, EmbedderChoice, Fetching, Published};
pub(crate) use crate::kb::estimate::{IndexEstimate, ServerEstimate};
pub(crate) use crate::kb::eval::Figures;
pub use crate::kb::extract::Include;
pub(crate) use crate::kb::ingest::{IngestEvent, IngestSummary, Rebuild, SkippedFile, ToSend};
pub use crate::kb::search::Scope;
pub(crate) use crate::kb::search::{Hit, SearchMode, Snippet, Support};
pub(crate) use crate::research::branch::Finding;
pub(crate) use crate::research::node::SourceHint;
pub(crate) use crate::research::plan::SavedPlan;
pub(crate) use crate::research::question::{Mode, Question};
pub(crate) use crate::research::report::{Outcome, Report, Section, StopReason, UsageTable};
pub(crate) use crate::run::background::JobEntry;
pub(crate) use crate::run::budget::{BudgetLimits, Spent};
pub(crate) use crate::run::event::{Event, RunRequest};
pub(crate) use crate::run::journal::{EgressKind, EgressRow};
pub(crate) use crate::run::ledger::CallNotice;
pub(crate) use crate::source::mcp::{SaidTool, kill_programs};
pub(crate) use crate::source::{Place, lines_of};

use self::opened::Opened;
use crate::base::folder::create_private;
use crate::config::{Paths, Settings};
use crate::kb::index::IndexLocation;
use crate::traces::{NotExported, TraceSettings};

/// `dr`, set up for one index.
#[derive(Clone, Debug)]
pub struct Engine {
    settings: Settings,
    location: IndexLocation,
    /// The folder with `dr.toml` and `.env`: that of the nearest `.dr`, else the working directory.
    pub(crate) project: PathBuf,
    audience: Audience,
    /// Shared by all clones.
    opened: Arc<Opened>,
}

impl Engine {
    /// Resolves the settings and the location of the index: from `flags`, the settings, or the nearest `.dr`.
    ///
    /// # Errors
    ///
    /// Returns an error for settings or an address that cannot be used, and for a `.dr` or an index that the user does
    /// not trust. A missing index is not an error yet.
    pub fn new(flags: &Flags) -> Result<Self, EngineError> {
        let paths = Paths::find()?;
        let nearest = IndexLocation::nearest(&paths.current);
        let project = match &nearest {
            Some(IndexLocation::Local { base, .. }) => base.clone(),
            _ => paths.current.clone(),
        };
        // Before the location, which a setting may name.
        let settings = Settings::resolve(paths, &project, flags)?;
        let location = match (&settings.values.index, nearest) {
            (Some(address), _) => {
                let cache_bytes = settings.values.index_cache_mb.saturating_mul(1 << 20);
                IndexLocation::parse(address)?.kept_in(&settings.paths.stores(), cache_bytes)
            }
            (None, Some(location)) => location,
            (None, None) => IndexLocation::in_folder(&settings.paths.current),
        };
        let engine = Self { settings, location, project, audience: Audience::default(), opened: Arc::default() };
        // All of this before anything of the index is read.
        engine.check_reachable()?;
        engine.location.check()?;
        engine.check_trusted()?;
        Ok(engine)
    }

    /// Checks that the user trusts the `.dr`, or the folder of the index.
    fn check_trusted(&self) -> Result<(), EngineError> {
        let trust = self.settings.paths.trust();
        match (self.location.dr_folder(), self.location.folder()) {
            (Some(dr), _) => Ok(trust.check(dr)?),
            // The user has named an index outside of any `.dr`: only its owner and mode are checked.
            (None, Some(folder)) => Ok(trust.check_named(folder)?),
            (None, None) => Ok(()),
        }
    }

    /// Returns an engine on the same index that opens no socket.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::RemoteOffline`] if the index is on the network.
    pub(crate) fn offline(&self) -> Result<Self, EngineError> {
        let mut engine = self.clone();
        engine.settings.values.offline = true;
        engine.check_reachable()?;
        Ok(engine)
    }

    fn check_reachable(&self) -> Result<(), EngineError> {
        match &self.location {
            IndexLocation::Remote { uri, .. } if self.is_offline() => {
                Err(EngineError::RemoteOffline { uri: uri.clone() })
            }
            IndexLocation::Remote { .. } | IndexLocation::Local { .. } => Ok(()),
        }
    }

    /// Returns what [`Self::trust`] would put to use.
    pub(crate) fn trustable(folder: &Path) -> Result<Trustable, EngineError> {
        Ok(Trustable::of(folder)?)
    }

    /// Trusts a folder that came from elsewhere: its `.dr` and a key in its `.env` are used. Returns its full path.
    pub(crate) fn trust(folder: &Path) -> Result<PathBuf, EngineError> {
        Ok(Paths::find()?.trust().add(folder)?)
    }

    /// Reverses [`Self::trust`].
    pub(crate) fn revoke_trust(folder: &Path) -> Result<PathBuf, EngineError> {
        Ok(Paths::find()?.trust().revoke(folder)?)
    }

    /// Returns the folder whose `.env` has a key that is ignored because the user does not trust the folder.
    pub(crate) fn ignored_key(&self) -> Option<&Path> {
        (self.settings.ignores_key() && !self.is_offline()).then_some(self.project.as_path())
    }

    /// Returns the location of the index, a folder or an address, whether or not it exists.
    pub(crate) fn index_address(&self) -> String {
        self.location.to_string()
    }

    /// Returns whether no socket may be opened.
    pub(crate) fn is_offline(&self) -> bool {
        self.settings.is_offline()
    }

    /// Returns where traces are exported to.
    ///
    /// # Errors
    ///
    /// Returns why they are not, which is the usual case.
    pub(crate) fn traces(&self) -> Result<TraceSettings, NotExported> {
        self.settings.traces()
    }
}

fn create_folder(folder: &Path) -> Result<(), EngineError> {
    let failed = |source| EngineError::Folder { action: "create", path: folder.to_path_buf(), source };
    create_private(folder).map_err(failed)
}
