//! The index: LanceDB tables that change one commit at a time.
//!
//! [`Index`] is a snapshot for readers. [`IndexWriter`] is the only way to write and holds the writer lock. If a writer
//! is killed, the last commit stays readable and the next run completes the work.
//!
//! # Where to look
//!
//! - [`schema`] defines the tables, [`manifest`] the metadata.
//! - `indexes` has the settings of the text and vector index, `chunk_terms` and `terms` the terms of chunks and of
//!   queries; `query` the two legs of a search and their filter.
//! - `write` has the commits and their order, `maintain` the upkeep.
//! - For an index on an object store, `store` connects to it, `lease` keeps writers apart, and `cache` keeps files on
//!   this machine. `service` has the differences for LanceDB's service.

mod service;
pub(crate) mod location;
pub(crate) mod terms;
mod versions;
pub(crate) mod schema;
mod chunk_terms;
pub(crate) mod manifest;
pub(crate) mod stamp;
mod step;
mod cache;
mod lease;
mod store;
mod indexes;
mod query;
mod patch;
mod write;
mod maintain;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;

use futures::{FutureExt, TryStreamExt};
use lancedb::Table;
use lancedb::arrow::SendableRecordBatchStream;
use lancedb::query::{ExecutableQuery, Query, QueryBase, Select};

pub(crate) use chunk_terms::{ChunkTerms, paragraphs};
pub(crate) use indexes::{TEXT_INDEX_VERSION, text_index_number};
pub(crate) use location::DR_FOLDER;
pub(crate) use location::leads_out_of;
pub use location::{IndexLocation, LocalSide, LocationError};
pub(crate) use manifest::{EmbedderRecord, Manifest, ManifestError};
pub(crate) use query::hash_of;
pub use query::{Filter, LegHit};
pub use schema::{ChunkRow, DocumentRow};
pub use service::{AccessError, ServiceError};
pub(crate) use versions::KEPT_VERSIONS;
pub use write::lock_writer;
pub(crate) use write::{IndexWriter, Replacement, writer};

use crate::base::id::DocumentId;
use crate::base::language::Language;
use crate::base::lock::FileLockError;
use crate::kb::structure::Structure;
use schema::Columns;
#[cfg(test)]
pub(crate) use step::STEPS_LEFT;
use step::step;
use store::{Tables, is_failed_request, is_full};
pub(crate) use terms::Terms;

const MANIFEST_TABLE: &str = "manifest";

/// Limit of a query for all rows, because some kinds return ten without one: half of the range, since it has to fit
/// into an `i64`.
const ALL: usize = usize::MAX >> 1;

/// Words of the search that [`Index::verify`] makes.
const TEXT_PROBE: &str = "the way of a thing";

/// A read-only snapshot of an index as of the commit it was opened at.
#[derive(Clone)]
pub struct Index {
    location: IndexLocation,
    tables: Tables,
    manifest: Manifest,
    chunks: Table,
    documents: Table,
}

/// An index could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("no index at `{location}`")]
    Missing { location: String },
    #[error("index at `{location}` cannot be read")]
    Manifest { location: String, source: ManifestError },
    /// Another process holds the writer lock.
    #[error("index is being written by {holder}")]
    Busy { holder: String },
    /// Another writer holds the lease of a collection.
    #[error("collection `{collection}` is being written by {holder}")]
    CollectionBusy { collection: String, holder: String },
    /// `collection` is empty for the index as a whole.
    #[error("lease of {} was lost", named(collection))]
    LeaseLost { collection: String },
    #[error("failed to {action}: other writers committed first, {attempts} times in a row")]
    Contended { action: &'static str, attempts: u64, source: Box<lancedb::Error> },
    #[error("index was rebuilt by another writer")]
    Superseded,
    #[error("failed to {action}")]
    Store { action: &'static str, source: Box<object_store::Error> },
    #[error("failed to {action}")]
    Service { action: &'static str, source: ServiceError },
    /// The address or key of LanceDB's service is unknown.
    #[error("failed to connect to `{location}`")]
    Access { location: String, source: AccessError },
    #[error(transparent)]
    Lock(FileLockError),
    #[error("failed to create `{path}`")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("failed to {action}")]
    Storage { action: &'static str, source: Box<lancedb::Error> },
    /// A table does not have the columns of [`schema`].
    #[error("failed to {action}")]
    Format { action: &'static str, source: arrow::error::ArrowError },
    /// A commit changed fewer or more rows than it was given.
    #[error("updated {changed} of {wanted} rows")]
    Lost { wanted: usize, changed: u64 },
    /// The copy of the manifest could not be written.
    #[error("failed to write `{path}`")]
    Copy { path: PathBuf, source: std::io::Error },
    /// A test stopped the writer before this step.
    #[cfg(test)]
    #[error("stopped before `{step}`")]
    Stopped { step: &'static str },
}

impl IndexError {
    /// Returns whether the stored data is unusable, at least for this `dr`: a rebuild may then replace it. A full disk,
    /// and a request that an object store refused or did not answer, say nothing about the data.
    fn is_damage(&self, location: &IndexLocation) -> bool {
        match self {
            Self::Manifest { .. } | Self::Format { .. } => true,
            Self::Storage { source, .. } => {
                !is_full(source) && (location.folder().is_some() || !is_failed_request(source))
            }
            _ => false,
        }
    }

    /// Returns a hint for the user, if there is a remedy.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { .. } => Some("run `dr index <FOLDER>` first".into()),
            Self::Manifest { source: ManifestError::TooNew { .. }, .. } => {
                Some("use the `dr` that wrote it, or a newer one".into())
            }
            Self::Manifest { .. } | Self::Format { .. } => Some("run `dr index --rebuild`".into()),
            Self::Busy { .. } => Some("wait until it has finished; searches work meanwhile".into()),
            Self::CollectionBusy { .. } => {
                Some("wait until it has finished; if it was killed, its lease runs out within three minutes".into())
            }
            Self::LeaseLost { .. } | Self::Contended { .. } | Self::Superseded => {
                Some("run `dr index` again: what was committed is kept".into())
            }
            Self::Store { .. } => Some(STORE_HINT.into()),
            Self::Service { source, .. } => Some(source.hint()),
            Self::Access { source, .. } => Some(source.hint()),
            Self::Storage { source, .. } if is_failed_request(source) => Some(STORE_HINT.into()),
            Self::Storage { source, .. } if is_full(source) => {
                Some("free some disk space, and run `dr index` again: what was committed is kept".into())
            }
            Self::Storage { .. } => Some("if the index is damaged, `dr index --rebuild` rebuilds it".into()),
            Self::Lost { .. } => Some("run `dr index` again, or `dr index --rebuild`".into()),
            Self::Lock(_) | Self::Folder { .. } | Self::Copy { .. } => None,
            #[cfg(test)]
            Self::Stopped { .. } => None,
        }
    }
}

/// Advice for errors of an object store, which a rebuild would not repair.
const STORE_HINT: &str = "check the address, the credentials and the network";

fn named(collection: &str) -> String {
    if collection.is_empty() { "the index".to_owned() } else { format!("collection `{collection}`") }
}

/// Adds the operation to an error of the storage engine.
trait During<T> {
    fn during(self, action: &'static str) -> Result<T, IndexError>;
}

impl<T> During<T> for Result<T, lancedb::Error> {
    fn during(self, action: &'static str) -> Result<T, IndexError> {
        self.map_err(|error| match ServiceError::of(error) {
            Ok(source) => IndexError::Service { action, source },
            Err(source) => IndexError::Storage { action, source: Box::new(source) },
        })
    }
}

impl<T> During<T> for Result<T, arrow::error::ArrowError> {
    fn during(self, action: &'static str) -> Result<T, IndexError> {
        self.map_err(|source| IndexError::Format { action, source })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct IndexStats {
    pub documents: usize,
    pub chunks: usize,
    pub vectors: usize,
    /// Chunks that are still to be embedded. Chunks without words are not counted: they get no vector.
    pub vectors_missing: usize,
    /// Chunks not covered by the text index yet, which are found by a slower scan.
    pub unindexed_text_rows: usize,
    /// Chunks not covered by the vector index yet; `None` without a vector index.
    pub unindexed_vector_rows: Option<usize>,
    /// Fragments of the chunks table.
    pub fragments: usize,
    /// Size of the chunks table in bytes.
    pub bytes: usize,
    /// Version of the chunks table, which increases with every commit.
    pub version: u64,
}

impl Index {
    /// Opens the index at `location` as of its latest commit.
    ///
    /// # Errors
    ///
    /// Returns [`IndexError::Missing`] if there is no index, and [`IndexError::Manifest`] if it has another format
    /// version.
    pub async fn open(location: &IndexLocation) -> Result<Self, IndexError> {
        let missing = || IndexError::Missing { location: location.to_string() };
        // Connecting would create the folder.
        if location.folder().is_some_and(|folder| !folder.is_dir()) {
            return Err(missing());
        }
        let tables = Tables::connect(location).await?;
        let manifest = read_manifest(location, &tables).await?.ok_or_else(missing)?;
        let index = Self::open_tables(location, tables, manifest).await?;
        if location.is_service() {
            index.pin().await?;
        }
        Ok(index)
    }

    /// Keeps the tables at their versions. Otherwise the tables of the service follow every commit, and the row ids
    /// of a search could be invalid when the rows are read.
    async fn pin(&self) -> Result<(), IndexError> {
        let pinned = futures::try_join!(pin_latest(&self.chunks), pin_latest(&self.documents));
        pinned.map(drop).during("read the latest version of the index")
    }

    /// Returns the metadata of the index without opening its tables of documents and chunks: its manifest, else the
    /// copy beside it. `None` if both are missing or damaged.
    ///
    /// Collections of the copy are added to those of the manifest, which is an earlier version if its latest file is
    /// missing.
    ///
    /// # Errors
    ///
    /// Returns the failure of an object store or of LanceDB's service: it does not tell what the index contains.
    pub(crate) async fn known(location: &IndexLocation) -> Result<Option<Manifest>, IndexError> {
        let folder = location.folder();
        if folder.is_some_and(|folder| !folder.is_dir()) {
            return Ok(None);
        }
        let read = async { read_manifest(location, &Tables::connect(location).await?).await };
        // Damage can make the storage engine panic.
        let manifest = match AssertUnwindSafe(read).catch_unwind().await {
            Ok(Ok(manifest)) => manifest,
            Ok(Err(error)) if !error.is_damage(location) => return Err(error),
            Ok(Err(_)) | Err(_) => None,
        };
        let copy = folder.and_then(Manifest::read_copy);
        Ok(match (manifest, copy) {
            (Some(manifest), Some(copy)) => {
                // The manifest comes last, so that its entries win.
                let collections = copy.collections.into_iter().chain(manifest.collections.clone()).collect();
                let includes = copy.includes.into_iter().chain(manifest.includes.clone()).collect();
                Some(Manifest { collections, includes, ..manifest })
            }
            (manifest, copy) => manifest.or(copy),
        })
    }

    async fn open_tables(location: &IndexLocation, tables: Tables, manifest: Manifest) -> Result<Self, IndexError> {
        let (chunks, documents) = futures::try_join!(
            tables.open(manifest.chunks_table()).execute(),
            tables.open(manifest.documents_table()).execute(),
        )
        .during("open the tables of the index")?;
        Ok(Self { location: location.clone(), tables, manifest, chunks, documents })
    }

    pub(crate) fn location(&self) -> &IndexLocation {
        &self.location
    }

    /// Returns the metadata of the index.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns how the words of a query become terms of this index, given the language of the query, if detected.
    pub(crate) fn terms(&self, asked: Option<&'static Language>) -> Terms {
        if text_index_number(&self.manifest.text_index) == Some(0) {
            Terms::AsTyped
        } else {
            Terms::stemmed(asked, &self.manifest.languages)
        }
    }

    /// Returns the language of more than half of the texts: of the documents, and of paragraphs in another language.
    pub(crate) fn language_of_most(&self) -> Option<&'static Language> {
        let languages = &self.manifest.languages;
        let (all, main) = (languages.values().copied().map(u64::from).sum::<u64>(), self.main_language());
        languages.get(main.code).is_some_and(|own| u64::from(*own) * 2 > all).then_some(main)
    }

    /// Returns the language that the words of a query are searched in: that of the query if any text is in it, else
    /// the main one of the index.
    pub(crate) fn language_for(&self, asked: Option<&'static Language>) -> &'static Language {
        terms::language_for(asked, &self.manifest.languages)
    }

    /// Returns the language of the largest number of documents.
    pub(crate) fn main_language(&self) -> &'static Language {
        terms::main_language(&self.manifest.languages)
    }

    /// Returns the folder that a collection was indexed from; `None` for an unknown collection, and for one whose
    /// folder was replaced by a symbolic link out of the project.
    pub(crate) fn root(&self, collection: &str) -> Option<PathBuf> {
        let stored = self.manifest.collections.get(collection)?;
        self.location.leads_out(stored).is_none().then(|| self.location.open_root(stored))
    }

    /// Returns the version of the chunks table, which increases with every commit.
    pub(crate) async fn version(&self) -> Result<u64, IndexError> {
        self.chunks.version().await.during("read the version of the index")
    }

    /// Moves the snapshot to the latest commits.
    async fn refresh(&self) -> Result<(), IndexError> {
        let moved = futures::try_join!(self.chunks.checkout_latest(), self.documents.checkout_latest());
        moved.map(drop).during("read the latest version of the index")
    }

    /// Returns every document of `collection`, or of all collections.
    pub async fn documents(&self, collection: Option<&str>) -> Result<Vec<DocumentRow>, IndexError> {
        let mut query = self.documents.query();
        if let Some(name) = collection {
            query = query.only_if(format!("collection = {}", query::literal(name)));
        }
        read("list documents", query, &schema::DOCUMENT_COLUMNS, ALL, |columns| columns.documents()).await
    }

    /// Returns the structure of documents, or of all if `only` is `None`. Returns `None` for an index of an earlier
    /// version of the chunker, which has none.
    pub(crate) async fn structures(
        &self,
        only: Option<&[DocumentId]>,
    ) -> Result<Option<HashMap<DocumentId, Structure>>, IndexError> {
        let action = "read the structure of documents";
        // The column was added later: an older index has none until the next `dr index`.
        if self.documents.schema().await.during(action)?.field_with_name(schema::STRUCTURE).is_err() {
            return Ok(None);
        }
        let mut query = self.documents.query();
        if let Some(documents) = only {
            query = query.only_if(query::of_documents(documents));
        }
        let columns = ["document_id", schema::STRUCTURE];
        let rows = read(action, query, &columns, ALL, |columns| columns.structures()).await?;
        Ok(Some(rows.into_iter().collect()))
    }

    /// Returns the chunks of a document in file order.
    pub async fn document_chunks(&self, document: &DocumentId) -> Result<Vec<ChunkRow>, IndexError> {
        let mut rows = self.chunks_where(&format!("document_id = '{document}'")).await?;
        // Rows come in storage order, which an update changes.
        rows.sort_by_key(|row| row.byte_start);
        Ok(rows)
    }

    pub(crate) async fn chunk(&self, id: &crate::base::id::ChunkId) -> Result<Option<ChunkRow>, IndexError> {
        Ok(self.chunks_where(&format!("chunk_id = '{id}'")).await?.pop())
    }

    async fn chunks_where(&self, filter: &str) -> Result<Vec<ChunkRow>, IndexError> {
        let query = self.chunks.query().only_if(filter);
        read("read chunks", query, &schema::CHUNK_COLUMNS, ALL, |columns| columns.chunks()).await
    }

    /// Returns the number of documents in these collections, or in all if there are none.
    pub(crate) async fn count_documents(&self, collections: &[String]) -> Result<usize, IndexError> {
        let only = Filter { collections: collections.to_vec(), ..Filter::default() };
        self.documents.count_rows(only.condition()).await.during("count the documents")
    }

    pub(crate) async fn count_chunks(&self, filter: &Filter) -> Result<usize, IndexError> {
        self.chunks.count_rows(filter.condition()).await.during("count the chunks")
    }

    /// Returns the number of chunks of a collection that have words, and how many of them get no vector because the
    /// embedder cannot read them.
    pub(crate) async fn count_unread(&self, collection: &str) -> Result<(usize, usize), IndexError> {
        let action = "count the chunks of a collection";
        let own = format!("collection = {}", query::literal(collection));
        let query = self.chunks.query().only_if(format!("{own} AND embed_key IS NULL"));
        // A chunk without words, such as a rule or a picture, gets no vector either.
        let has_words = |text: &str| text.chars().any(char::is_alphanumeric);
        let without_key = read(action, query, &["text"], ALL, |columns| {
            Ok(columns.text("text")?.iter().map(|text| text.is_some_and(has_words)).collect())
        });
        let without_key: Vec<bool> = without_key.await?;
        let all = self.chunks.count_rows(Some(own)).await.during(action)?;
        let unread = without_key.iter().filter(|is_unread| **is_unread).count();
        Ok((all.saturating_sub(without_key.len() - unread), unread))
    }

    /// Computes the statistics of the index.
    pub async fn stats(&self) -> Result<IndexStats, IndexError> {
        let action = "count the rows of the index";
        let table = self.chunks.stats().await.during(action)?;
        let count = async |filter: &str| self.chunks.count_rows(Some(filter.to_owned())).await.during(action);
        Ok(IndexStats {
            documents: self.documents.count_rows(None).await.during(action)?,
            chunks: table.num_rows,
            vectors: count("vector IS NOT NULL").await?,
            vectors_missing: count(self.pending().await?).await?,
            unindexed_text_rows: self.unindexed_rows(indexes::TEXT_INDEX).await?.unwrap_or(table.num_rows),
            unindexed_vector_rows: self.unindexed_rows(indexes::VECTOR_INDEX).await?,
            fragments: table.fragment_stats.num_fragments,
            bytes: table.total_bytes,
            version: self.version().await?,
        })
    }

    /// Reads everything that a search or an update could read. Returns how many documents lack some of their chunks.
    /// No error shows that: a damaged table may open at an earlier version.
    pub(crate) async fn verify(&self) -> Result<usize, IndexError> {
        let action = "read the chunks";
        let mut chunks: HashMap<DocumentId, u32> = HashMap::new();
        let columns = [&schema::CHUNK_COLUMNS[..], &[schema::SEARCHED, "vector"]].concat();
        let query = self.chunks.query().select(Select::columns(&columns)).limit(ALL);
        let mut stream = query.execute().await.during(action)?;
        while let Some(batch) = stream.try_next().await.during(action)? {
            for row in Columns(&batch).chunks().during(action)? {
                *chunks.entry(row.document_id).or_default() += 1;
            }
        }
        if self.unindexed_rows(indexes::TEXT_INDEX).await?.is_some() {
            // Reads the whole text index, while a search reads only the lists of its words. The service stores its
            // own files.
            if !self.location.is_service() {
                self.chunks.prewarm_index(indexes::TEXT_INDEX).await.during("read the text index")?;
            }
            let terms = self.terms(None);
            self.text_leg(&terms, (TEXT_PROBE, ""), &Filter::default(), 1).await?;
            self.phrase_leg(&terms, TEXT_PROBE, &Filter::default(), 1).await?;
        }
        let probe = vec![1.0; self.manifest.embedder.dimension];
        self.vector_leg(&probe, &Filter::default(), 1, false).await?;
        self.structures(None).await?;
        let documents = self.documents(None).await?;
        Ok(documents.iter().filter(|row| chunks.get(&row.id).copied().unwrap_or(0) != row.chunks).count())
    }

    async fn unindexed_rows(&self, name: &str) -> Result<Option<usize>, IndexError> {
        let stats = self.chunks.index_stats(name).await.during("read index statistics")?;
        Ok(stats.map(|stats| stats.num_unindexed_rows))
    }
}

async fn pin_latest(table: &Table) -> Result<(), lancedb::Error> {
    table.checkout(table.version().await?).await
}

async fn read_manifest(location: &IndexLocation, tables: &Tables) -> Result<Option<Manifest>, IndexError> {
    let table = match tables.open(MANIFEST_TABLE).execute().await {
        Ok(table) => table,
        // A corrupted table means that a writer was killed during the first commit: there is no index yet.
        Err(lancedb::Error::TableNotFound { .. } | lancedb::Error::TableCorrupted { .. }) => return Ok(None),
        Err(error) => return Err(error).during("open the index manifest"),
    };
    let manifest = manifest_in(&table).await?;
    manifest.map(Some).map_err(|source| IndexError::Manifest { location: location.to_string(), source })
}

/// Reads the manifest at the open version of a table.
async fn manifest_in(table: &Table) -> Result<Result<Manifest, ManifestError>, IndexError> {
    let action = "read the index manifest";
    let stream = table.query().limit(ALL).execute().await.during(action)?;
    let entries = collect(stream, action, |columns| columns.manifest()).await?;
    Ok(Manifest::from_entries(entries))
}

/// Reads some columns of up to `limit` rows.
async fn read<T>(
    action: &'static str,
    query: Query,
    columns: &[&str],
    limit: usize,
    rows: impl Fn(Columns<'_>) -> Result<Vec<T>, arrow::error::ArrowError>,
) -> Result<Vec<T>, IndexError> {
    let stream = query.select(Select::columns(columns)).limit(limit).execute().await.during(action)?;
    collect(stream, action, rows).await
}

async fn collect<T>(
    mut stream: SendableRecordBatchStream,
    action: &'static str,
    rows: impl Fn(Columns<'_>) -> Result<Vec<T>, arrow::error::ArrowError>,
) -> Result<Vec<T>, IndexError> {
    let mut collected = Vec::new();
    while let Some(batch) = stream.try_next().await.during(action)? {
        collected.extend(rows(Columns(&batch)).during(action)?);
    }
    Ok(collected)
}
