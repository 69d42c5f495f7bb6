//! Searching the index, and measuring search quality.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::request::{check_query, check_scope};
use super::{Engine, EngineError};
use crate::base::line::with_causes;
use crate::kb::embed::{self, EmbedError, Embedder, EmbedderChoice, EmbedderOptions};
use crate::kb::eval::{Figures, Ranking, check_indexed, measure, parse_judgments, parse_queries};
use crate::kb::index::{Filter, Index, IndexLocation, Manifest};
use crate::kb::rerank::{Rerank, RerankError, Reranker};
use crate::kb::search::{
    Hit, JudgedHits, Measured, PerDocument, Scope, SearchMode, SearchOptions, Searcher, Support, VectorsUnusable,
};
use crate::run::event::Listwise;

/// Documents ranked per question of an evaluation.
// The deepest figure is recall at 100.
const EVAL_DEPTH: usize = 100;

/// A search. A part that is left out is taken from the settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct SearchRequest {
    pub(crate) query: String,
    pub(crate) scope: Scope,
    pub(crate) limit: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Searched {
    pub(crate) mode: SearchMode,
    /// Hits, best first.
    pub hits: Vec<Hit>,
    /// Whether the hits are relevant to the query.
    pub(crate) support: Support,
    /// Notes on words of the query that the index does not have.
    pub(crate) unknown: Vec<String>,
    /// Why vectors were not used although the mode asks for them, and a command that fixes it.
    pub(crate) without_vectors: Option<(String, String)>,
    /// Why the hits were not reranked although a reranker is configured.
    pub(crate) not_reranked: Option<String>,
    /// Duration of the search, without opening the index.
    pub(crate) elapsed: Duration,
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EvalFigures {
    pub(crate) mode: SearchMode,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

impl Engine {
    /// Searches the index with the mode and limit of the settings.
    ///
    /// # Errors
    ///
    /// Returns an error for a query without words, a scope that cannot be searched, or an index that cannot be read.
    pub async fn search(&self, query: &str, scope: &Scope) -> Result<Searched, EngineError> {
        self.find(&SearchRequest { query: query.to_owned(), scope: scope.clone(), limit: None }).await
    }

    /// Searches the collections that the audience may see.
    ///
    /// # Errors
    ///
    /// As [`Self::search`]. Also returns an error if a collection is named that the audience may not see.
    pub(crate) async fn find(&self, request: &SearchRequest) -> Result<Searched, EngineError> {
        let query = request.query.as_str();
        check_query(query)?;
        let mode = self.settings.values.mode;
        let limit = request.limit.unwrap_or(self.settings.values.limit);
        let mut options = SearchOptions { mode, limit, ..check_scope(&request.scope)? };
        let searcher = self.searcher(mode).await?;
        check_collections(searcher.index(), &request.scope.collections)?;
        options.filter.collections = self.served(searcher.index().manifest(), &request.scope)?.collections;
        let searcher = self.reranking(searcher, &options.filter.collections, false)?;
        let searcher = self.fenced(searcher, &options.filter.collections);
        let started = Instant::now();
        // Token vectors would take half of the search.
        let judged = searcher.search_and_judge(query, &options, Measured::Similarity).await?;
        let unknown = judged.said(judged.support);
        let JudgedHits { mut found, support, .. } = judged;
        let about = self.settings.about();
        for hit in &mut found.hits {
            hit.about = about.of(&hit.collection, &hit.path).map(str::to_owned);
        }
        Ok(Searched {
            mode: options.mode,
            hits: found.hits,
            support,
            unknown,
            not_reranked: found.not_reranked,
            without_vectors: found.without_vectors.map(|reason| (reason.to_string(), reason.hint())),
            elapsed: started.elapsed(),
        })
    }

    /// Measures searches against judgments. Both parameters are the text of a file.
    ///
    /// # Errors
    ///
    /// Returns an error for text that cannot be parsed, or if a judged file is not in the index.
    pub(crate) async fn eval(
        &self,
        queries: &str,
        judgments: &str,
        collection: Option<&str>,
    ) -> Result<EvalFigures, EngineError> {
        let (queries, judgments) = (parse_queries(queries)?, parse_judgments(judgments)?);
        let mode = self.settings.values.mode;
        let searcher = self.searcher(mode).await?;
        let filter = Filter { collections: collection.map(str::to_owned).into_iter().collect(), ..Filter::default() };
        check_collections(searcher.index(), &filter.collections)?;
        let searcher = self.reranking(searcher, &filter.collections, false)?;
        let searcher = self.fenced(searcher, &filter.collections);
        let documents = searcher.index().documents(collection).await?;
        let indexed: HashSet<_> = documents.into_iter().map(|row| row.path).collect();
        check_indexed(&judgments, &indexed)?;
        let options =
            // Judgments name files, so each file counts once.
            SearchOptions { mode, limit: EVAL_DEPTH, per_document: PerDocument::Only(1), filter, ..SearchOptions::default() };
        let mut rankings = Vec::new();
        for query in queries.iter().filter(|query| judgments.contains_key(&query.id)) {
            let started = Instant::now();
            let found = searcher.search(&query.text, &options).await?;
            let paths = found.hits.into_iter().map(|hit| hit.path).collect();
            rankings.push(Ranking { query: query.id.clone(), paths, latency: started.elapsed() });
        }
        Ok(EvalFigures { mode, figures: measure(&rankings, &judgments)? })
    }

    /// Returns a searcher that reranks if a reranker is configured and may see these collections (all of them if
    /// empty). A server elsewhere is a model endpoint: it sees no collection that is `local_only`, and without a price
    /// it has no place under a cost limit.
    pub(super) fn reranking(
        &self,
        searcher: Searcher,
        collections: &[String],
        is_cost_limited: bool,
    ) -> Result<Searcher, EngineError> {
        let Some(reranker) = self.reranker()? else { return Ok(searcher) };
        let mut searched = searcher.index().manifest().collections.keys();
        let closed =
            searched.find(|name| (collections.is_empty() || collections.contains(name)) && self.is_local_only(name));
        let withheld = if reranker.is_of_run() {
            Some(RerankError::OfRun.to_string())
        } else if reranker.is_server() && self.settings.is_offline() {
            Some("offline".to_owned())
        } else if reranker.is_local() {
            None
        } else {
            match closed {
                Some(name) => Some(format!("`{name}` is only for models of your own")),
                None if is_cost_limited => Some("it has no price, and the cost of the run is limited".to_owned()),
                None => None,
            }
        };
        Ok(searcher.with_rerank(match withheld {
            Some(reason) => Rerank::Withheld(format!("{reranker} was not used: {reason}")),
            None => Rerank::By(Arc::clone(reranker)),
        }))
    }

    /// Returns how the language model of a run reranks the hits of its workers; `None` if it does not.
    pub(super) fn listwise(&self) -> Result<Option<Listwise>, EngineError> {
        let reranker = self.reranker()?.filter(|reranker| reranker.is_of_run());
        Ok(reranker.map(|reranker| Listwise { candidates: reranker.candidates, timeout: reranker.timeout }))
    }

    /// Returns the reranker of the settings, which is made once.
    fn reranker(&self) -> Result<Option<&Arc<Reranker>>, EngineError> {
        // Making it can fail, and `OnceLock::get_or_try_init` is not stable.
        let reranker = match self.opened.reranker.get() {
            Some(known) => known,
            None => {
                let made = self.settings.reranker()?.map(Arc::new);
                self.opened.reranker.get_or_init(|| made)
            }
        };
        Ok(reranker.as_ref())
    }

    /// Returns a searcher whose queries stay on machines of the user if a collection that is searched is `local_only`
    /// (without names, all collections are searched): a query may be made from its texts.
    pub(super) fn fenced<'a>(&self, searcher: Searcher, collections: impl IntoIterator<Item = &'a String>) -> Searcher {
        let Some(server) = searcher.server() else { return searcher };
        let mut searched: Vec<_> = collections.into_iter().collect();
        if searched.is_empty() {
            searched.extend(searcher.index().manifest().collections.keys());
        }
        let closed = searched.iter().find(|name| self.is_local_only(name));
        let why = if self.settings.is_offline() {
            "dr is offline".to_owned()
        } else {
            match closed {
                Some(name) if !server.is_local => {
                    format!("`{name}` is for local models only, and the server is at {}", server.address)
                }
                Some(_) | None => return searcher,
            }
        };
        searcher.without_vectors(VectorsUnusable::Withheld(why))
    }

    /// Returns the embedder to use: that of the settings, else that of the index, else the built-in one.
    pub(super) fn embedder_choice(&self, stored: Option<&Manifest>, rebuild: bool) -> EmbedderChoice {
        let stored = stored.filter(|_| !rebuild).and_then(|manifest| manifest.embedder.choice.parse().ok());
        let stored = stored.filter(|choice| !self.is_shipped(choice));
        match self.settings.values.embedder.clone().or(stored).unwrap_or_default() {
            // Absolute, because the index stores the choice and may be used from another working directory.
            EmbedderChoice::Fastembed(model) if Path::new(&model).is_dir() => {
                let folder = std::path::absolute(&model).unwrap_or_else(|_| PathBuf::from(&model));
                EmbedderChoice::Fastembed(folder.to_string_lossy().into_owned())
            }
            choice => choice,
        }
    }

    /// Returns the embedder of queries: that of the vectors there are, which no other can be compared with, so that
    /// search goes on until the index has those of another that the settings name. A server is asked only if the
    /// settings name it, too.
    fn query_embedder(&self, stored: &Manifest) -> EmbedderChoice {
        match stored.embedder.choice.parse() {
            Ok(choice @ (EmbedderChoice::Builtin | EmbedderChoice::Fastembed(_))) if !self.is_shipped(&choice) => {
                choice
            }
            Ok(_) | Err(_) => self.embedder_choice(Some(stored), false),
        }
    }

    /// Returns whether an embedder is a folder inside the project. Such a model may have been shipped with the index by
    /// a stranger, so it is loaded only if the user names it.
    fn is_shipped(&self, choice: &EmbedderChoice) -> bool {
        match (choice, &self.location) {
            (EmbedderChoice::Fastembed(model), IndexLocation::Local { base, .. }) => {
                // An absolute path replaces the base, so this covers both relative and absolute ones.
                base.join(model).exists() && base.join(model).starts_with(base)
            }
            _ => false,
        }
    }

    pub(super) async fn load_embedder(&self, choice: &EmbedderChoice) -> Result<Arc<dyn Embedder>, EmbedError> {
        self.load_embedder_as(choice, self.settings.is_offline()).await
    }

    /// Loads an embedder. A server is only asked if `offline` is unset.
    pub(super) async fn load_embedder_as(
        &self,
        choice: &EmbedderChoice,
        offline: bool,
    ) -> Result<Arc<dyn Embedder>, EmbedError> {
        let endpoint = match choice {
            EmbedderChoice::Endpoint(model) => Some(self.settings.embedding(model)?),
            EmbedderChoice::Builtin | EmbedderChoice::Fastembed(_) => None,
        };
        let options = EmbedderOptions {
            choice: choice.clone(),
            offline,
            endpoint,
            store: self.settings.paths.store(),
            data_dir: Some(self.settings.paths.data.clone()),
            threads: self.settings.values.threads,
        };
        let model = choice.to_string();
        tokio::task::spawn_blocking(move || embed::load(&options))
            .await
            .unwrap_or_else(|error| Err(EmbedError::Load { model, source: Box::new(error) }))
    }

    /// Opens the index for searching in `mode`, with its embedder if the mode needs one and it can be loaded.
    ///
    /// The most likely embedder is loaded while the index is being opened.
    pub(super) async fn searcher(&self, mode: SearchMode) -> Result<Searcher, EngineError> {
        if mode == SearchMode::Lexical {
            let reason = "a lexical search does not load it".to_owned();
            return Ok(Searcher::new(self.open_index().await?, Err(VectorsUnusable::NoEmbedder(reason))));
        }
        // The one used last: only one is kept open, and a wrong guess from the settings would replace it each time.
        let likely = self.opened.embedder_choice().unwrap_or_else(|| self.embedder_choice(None, false));
        let (index, loaded) = futures::join!(self.open_index(), self.warm_embedder(&likely));
        let index = index?;
        let choice = self.query_embedder(index.manifest());
        let loaded = if choice == likely { loaded } else { self.warm_embedder(&choice).await };
        let embedder = loaded.map_err(|error| VectorsUnusable::NoEmbedder(with_causes(&error)));
        Ok(Searcher::new(index, embedder))
    }
}

/// Refuses collections that are not in the index.
pub(super) fn check_collections(index: &Index, wanted: &[String]) -> Result<(), EngineError> {
    let collections = &index.manifest().collections;
    match wanted.iter().find(|name| !collections.contains_key(*name)) {
        Some(name) => {
            Err(EngineError::NoCollection { name: name.clone(), known: collections.keys().cloned().collect() })
        }
        None => Ok(()),
    }
}
