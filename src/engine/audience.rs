//! The audience of an engine: who receives its results, and which collections they may see.
//!
//! A `local_only` collection is shown only on this machine. The rule is here and not in a server, so that every surface
//! follows it: searches leave such collections out, and naming one, or a run that has its text, is an error.

use std::collections::BTreeSet;

use super::stored::{KnownCollections, Origins, RunSummary};
use super::{AskRequest, Engine, EngineError};
use crate::kb::index::Manifest;
use crate::kb::search::Scope;
use crate::run::store::Store;
use crate::run::tree::RunState;

/// The receivers of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Programs and people on this machine.
    #[default]
    ThisMachine,
    /// Clients that connect from anywhere.
    Anywhere,
}

impl Engine {
    /// Returns an engine whose results are for `audience`.
    #[must_use]
    pub(crate) fn for_audience(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Returns whether a collection may be shown to the audience.
    pub(super) fn serves(&self, collection: &str) -> bool {
        self.audience == Audience::ThisMachine || !self.is_local_only(collection)
    }

    pub(super) fn is_local_only(&self, collection: &str) -> bool {
        self.settings.values.collections.get(collection).is_some_and(|options| options.local_only)
    }

    /// Returns whether one of these collections is `local_only`.
    pub(super) fn has_local_only(&self, collections: &BTreeSet<String>) -> bool {
        collections.iter().any(|name| self.is_local_only(name))
    }

    /// Refuses a collection that may not be shown to the audience.
    pub(super) fn check_served(&self, collection: &str) -> Result<(), EngineError> {
        if self.serves(collection) {
            return Ok(());
        }
        Err(EngineError::LocalOnly { collection: collection.to_owned() })
    }

    /// Restricts a scope to the collections that may be shown to the audience.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::LocalOnly`] if a collection is named that may not be shown, or there is no other.
    pub(super) fn served(&self, manifest: &Manifest, scope: &Scope) -> Result<Scope, EngineError> {
        for collection in &scope.collections {
            self.check_served(collection)?;
        }
        let (open, closed): (Vec<_>, Vec<_>) = manifest.collections.keys().partition(|name| self.serves(name));
        if let (Some(closed), true) = (closed.first(), open.is_empty()) {
            return Err(EngineError::LocalOnly { collection: (*closed).clone() });
        }
        if self.audience == Audience::ThisMachine || !scope.collections.is_empty() {
            return Ok(scope.clone());
        }
        // Named even if they are all of the index, which may get a closed one before it is searched.
        Ok(Scope { collections: open.into_iter().cloned().collect(), ..scope.clone() })
    }

    /// Restricts a question to the collections that may be shown to the audience, and to the runs it may follow.
    ///
    /// # Errors
    ///
    /// As [`Self::served`] and [`Self::check_run_served`].
    pub(super) async fn served_request(&self, mut request: AskRequest) -> Result<AskRequest, EngineError> {
        // Nothing is left out there, so the index need not be opened.
        if self.audience == Audience::ThisMachine {
            return Ok(request);
        }
        request.run.scope = self.served(self.open_index().await?.manifest(), &request.run.scope)?;
        if let Some(name) = &request.follow {
            let store = self.known_runs()?;
            let run = store.find(Some(name)).await?;
            let (_, state) = store.read(&run).await?;
            self.check_run_served(&store, &state).await?;
        }
        Ok(request)
    }

    /// Lists the stored runs whose reports the audience may see, newest first.
    pub(crate) async fn served_runs(&self) -> Result<Vec<RunSummary>, EngineError> {
        let mut runs = self.runs().await?.runs;
        runs.retain(|run| run.problem.is_none());
        if self.audience == Audience::ThisMachine || runs.is_empty() {
            return Ok(runs);
        }
        let store = self.known_runs()?;
        let mut served = Vec::new();
        for run in runs {
            let (_, state) = store.read(&run.id).await?;
            match self.check_run_served(&store, &state).await {
                Ok(()) => served.push(run),
                Err(EngineError::LocalOnly { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(served)
    }

    /// Refuses a run that may have text of a collection that may not be shown to the audience.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::LocalOnly`], or an error if an earlier run that this one follows cannot be read.
    pub(super) async fn check_run_served(&self, store: &Store, state: &RunState) -> Result<(), EngineError> {
        if self.audience == Audience::ThisMachine {
            return Ok(());
        }
        let known = match Origins::of(store, state).await?.collections {
            KnownCollections::These(names) => names,
            // It may have text of any collection, and only the settings can make one `local_only`.
            KnownCollections::Any => self.settings.values.collections.keys().cloned().collect::<BTreeSet<_>>(),
        };
        known.iter().try_for_each(|name| self.check_served(name))
    }
}
