//! Names that a shell completes, read on each press of a key: nothing is created, migrated, locked or sent, and
//! unreadable entries are left out.

use super::Engine;
use crate::base::id::RunId;
use crate::kb::embed::{catalogue, rerankers};
use crate::kb::index::{Index, IndexLocation};
use crate::run::store::Store;

impl Engine {
    /// Returns the newest runs with their questions, newest first.
    pub(crate) fn run_names(&self) -> Vec<(RunId, String)> {
        let runs = Store::glance(&self.runs_folder()).unwrap_or_default();
        runs.into_iter().map(|run| (run.id, run.question)).collect()
    }

    /// Returns the collections of an index on this machine.
    pub(crate) async fn collection_names(&self) -> Vec<String> {
        match &self.location {
            IndexLocation::Local { .. } => {
                // The manifest has the names, so chunks and documents are not opened.
                let known = Index::known(&self.location).await;
                known.ok().flatten().map(|manifest| manifest.collections.into_keys().collect()).unwrap_or_default()
            }
            // Its names would have to be asked for over the network.
            IndexLocation::Remote { .. } => Vec::new(),
        }
    }

    /// Returns the built-in embedder and the models of the catalogue.
    pub(crate) fn model_names() -> Vec<String> {
        let embedders = catalogue().into_iter().map(|model| model.name);
        let again = rerankers().into_iter().map(|model| model.name);
        ["builtin".to_owned()].into_iter().chain(embedders).chain(again).collect()
    }

    /// Returns the tool servers of the settings.
    pub(crate) fn server_names(&self) -> Vec<String> {
        self.settings.values.mcp.keys().cloned().collect()
    }
}
