//! Builds and updates the index of folders.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError, create_folder};
use crate::kb::embed::{EmbedError, Embedder, EmbeddingServerError, Fetching};
use crate::kb::estimate::{IndexEstimate, estimate};
use crate::kb::extract::Include;
use crate::kb::index::{EmbedderRecord, Index, IndexError, Manifest, leads_out_of};
use crate::kb::ingest::{
    CollectionSource, IngestError, IngestEvent, IngestOptions, IngestSummary, Listener, Rebuild, ingest, upgrade,
};

/// Options of [`Engine::index`].
#[derive(Clone, Debug, Default)]
pub struct IndexRequest {
    /// Folders to index; if empty, all folders in the index.
    pub folders: Vec<PathBuf>,
    /// Collection names, in the order of the folders; a folder without one uses its own name.
    pub names: Vec<String>,
    /// Formats that the folders include beside Markdown and plain text; if `None`, those of the settings, else those of
    /// the last time.
    pub include: Option<Include>,
    /// See [`IngestOptions::embed`].
    pub embed: bool,
    /// See [`IngestOptions::prune`].
    pub prune: bool,
    /// See [`IngestOptions::verify`].
    pub verify: bool,
    /// Whether to read, split and embed everything again.
    pub rebuild: bool,
    /// See [`IngestOptions::pause`].
    pub pause: CancellationToken,
}

/// Everything that indexing needs.
struct Indexing {
    embedder: Arc<dyn Embedder>,
    /// The embedder as the index records it.
    choice: String,
    options: IngestOptions,
    /// The manifest of the index as it is; `None` if there is none.
    stored: Option<Manifest>,
}

/// The embedder of an earlier indexing with its name in the index. It is loaded, and has counted its cost so far.
pub(super) type KeptEmbedder = Option<(String, Arc<dyn Embedder>)>;

impl Engine {
    /// Updates the index from folders, and creates it if necessary.
    ///
    /// # Errors
    ///
    /// See [`IngestError`]. Folders and names that do not match are an error too.
    pub async fn index(
        &self,
        request: &IndexRequest,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Result<IngestSummary, EngineError> {
        self.index_again(request, &mut None, listener, cancel).await
    }

    /// As [`Self::index`], with the embedder of an earlier indexing if it is still the right one. The limit on what it
    /// may spend is that of all indexings together.
    pub(super) async fn index_again(
        &self,
        request: &IndexRequest,
        kept: &mut KeptEmbedder,
        listener: Listener<'_>,
        cancel: &CancellationToken,
    ) -> Result<IngestSummary, EngineError> {
        if !self.is_offline() {
            let stored = Index::known(&self.location).await?;
            let choice = self.embedder_choice(stored.as_ref(), request.rebuild);
            let listener = |event| listener(IngestEvent::Downloading(event));
            // Before `indexing`, which loads the embedder and downloads nothing.
            self.fetch_embedder(&choice, &Fetching { listener: &listener, cancel }).await?;
        }
        let Indexing { embedder, choice, options, stored } =
            self.indexing(request, self.is_offline(), kept.as_ref()).await?;
        let is_kept = kept.as_ref().is_some_and(|(_, known)| Arc::ptr_eq(known, &embedder));
        let payable = self.payable(&embedder, &options, stored.as_ref())?;
        // A kept embedder already has its limit; with a new one, each indexing could spend it again.
        let embedder = if is_kept { embedder } else { payable };
        *kept = Some((choice.clone(), Arc::clone(&embedder)));
        // After everything that can be refused, which then leaves no empty `.dr`.
        self.make_folder()?;
        listener(IngestEvent::Opened { is_new: stored.is_none(), rebuild: options.rebuild });
        Ok(ingest(&self.location, &embedder, &choice, &options, listener, cancel).await?)
    }

    /// Estimates the work, time and cost of [`Self::index`]. Writes nothing, downloads nothing and asks no server.
    ///
    /// # Errors
    ///
    /// As [`Self::index`], except that a limit on the cost is no error.
    pub(crate) async fn index_estimate(&self, request: &IndexRequest) -> Result<IndexEstimate, EngineError> {
        let Indexing { embedder, choice, options, stored } = self.indexing(request, true, None).await?;
        self.check_open(&embedder, &options, stored.as_ref())?;
        let max_cost = self.settings.limits().cost_nanos;
        Ok(estimate(&self.location, &embedder, &choice, &options, max_cost).await?)
    }

    /// Prepares indexing. Writes and downloads nothing.
    async fn indexing(
        &self,
        request: &IndexRequest,
        offline: bool,
        kept: Option<&(String, Arc<dyn Embedder>)>,
    ) -> Result<Indexing, EngineError> {
        // A rebuild starts from the files, and opens nothing that may be damaged.
        if !request.rebuild {
            match Index::open(&self.location).await {
                Ok(_) | Err(IndexError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let stored = Index::known(&self.location).await?;
        let choice = self.embedder_choice(stored.as_ref(), request.rebuild);
        let name = choice.to_string();
        let embedder = match kept.filter(|(known, _)| *known == name) {
            Some((_, embedder)) => Arc::clone(embedder),
            None => self.load_embedder_as(&choice, offline).await?,
        };
        let rebuild = match &stored {
            _ if request.rebuild => Rebuild::All,
            Some(manifest) if request.embed && self.is_switched(&manifest.embedder, embedder.as_ref()) => {
                Rebuild::Embedder
            }
            Some(manifest) => upgrade(manifest, &embedder),
            None => Rebuild::No,
        };
        let (sources, forget) = self.sources(request, rebuild, stored.as_ref())?;
        let options = IngestOptions {
            sources,
            forget,
            embed: request.embed,
            prune: request.prune,
            verify: request.verify,
            rebuild,
            pause: request.pause.clone(),
        };
        Ok(Indexing { embedder, choice: name, options, stored })
    }

    /// Returns whether a settings file names another embedder than the one that made the vectors of an index. A flag or
    /// a variable is for one command, and throws no vectors away.
    pub(super) fn is_switched(&self, stored: &EmbedderRecord, embedder: &dyn Embedder) -> bool {
        let wanted = self.embedder_choice(None, true).to_string();
        self.settings.is_in_file("embedder") && stored.choice != wanted && stored.fingerprint != embedder.fingerprint()
    }

    /// Returns the embedder with the limit on what it may spend, if it is a server that may be sent everything that is
    /// to be embedded.
    fn payable(
        &self,
        embedder: &Arc<dyn Embedder>,
        options: &IngestOptions,
        stored: Option<&Manifest>,
    ) -> Result<Arc<dyn Embedder>, EngineError> {
        let Some(server) = embedder.server().filter(|_| options.embed) else { return Ok(Arc::clone(embedder)) };
        if self.is_offline() {
            let (model, address) = (embedder.name().to_owned(), server.address.to_string());
            return Err(EmbedError::Endpoint { model, address, source: Box::new(EmbeddingServerError::Offline) }.into());
        }
        self.check_open(embedder, options, stored)?;
        let limit = self.settings.limits().cost_nanos;
        if server.price.is_none() && limit.is_some() {
            return Err(EngineError::EmbedderUnpriced { embedder: embedder.name().to_owned() });
        }
        Ok(embedder.within(limit).unwrap_or_else(|| Arc::clone(embedder)))
    }

    /// Refuses to send a `local_only` collection to a server on another machine. Collections that are not read may have
    /// chunks that wait for their vector.
    fn check_open(
        &self,
        embedder: &Arc<dyn Embedder>,
        options: &IngestOptions,
        stored: Option<&Manifest>,
    ) -> Result<(), EngineError> {
        let Some(server) = embedder.server().filter(|server| options.embed && !server.is_local) else { return Ok(()) };
        let known = stored.into_iter().flat_map(|manifest| manifest.collections.keys());
        let mut embedded = known
            .filter(|name| !options.forget.contains(name))
            .chain(options.sources.iter().map(|source| &source.name));
        match embedded.find(|name| self.is_local_only(name)) {
            Some(collection) => Err(EngineError::EmbedderNotLocal {
                collection: collection.clone(),
                embedder: embedder.name().to_owned(),
                address: server.address.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the folders that a request is about, as [`Self::index`] would read them.
    ///
    /// # Errors
    ///
    /// As [`Self::index`] for folders that it refuses.
    pub(super) async fn folders_of(&self, request: &IndexRequest) -> Result<Vec<CollectionSource>, EngineError> {
        let stored = Index::known(&self.location).await?;
        let (sources, _) = self.sources(request, Rebuild::No, stored.as_ref())?;
        Ok(sources)
    }

    /// Returns the folders to index, and the collections to remove because their folder is missing or a link out of the
    /// project.
    ///
    /// A rebuild, or a request without folders, includes every folder of the index, so that no collection is lost.
    fn sources(
        &self,
        request: &IndexRequest,
        rebuild: Rebuild,
        stored: Option<&Manifest>,
    ) -> Result<(Vec<CollectionSource>, Vec<String>), EngineError> {
        let mut sources = Vec::new();
        let mut names = request.names.iter();
        for folder in &request.folders {
            let root = self.named_root(folder)?;
            if !root.is_dir() {
                return Err(IngestError::NotAFolder { path: folder.clone() }.into());
            }
            let name = match names.next() {
                Some(name) => name.clone(),
                None => self.known_name(&root, stored).unwrap_or_else(|| folder_name(&root)),
            };
            if sources.iter().any(|source: &CollectionSource| source.name == name) {
                return Err(EngineError::SameName { name });
            }
            sources.push(CollectionSource { include: self.include(request, &name, stored), name, root });
        }
        let mut forget = Vec::new();
        if request.folders.is_empty() || rebuild != Rebuild::No {
            let collections = stored.map(|manifest| manifest.collections.clone()).unwrap_or_default();
            for (name, root) in collections {
                if sources.iter().any(|source| source.name == name) {
                    continue;
                }
                if let Some(real) = self.location.leads_out(&root) {
                    if !request.prune {
                        return Err(EngineError::LinkOutside { link: root.into(), real, was_folder: true });
                    }
                    forget.push(name);
                    continue;
                }
                let is_inside = self.location.owns(&root);
                let root = self.location.open_root(&root);
                if !is_inside {
                    return Err(EngineError::RootOutside { collection: name, root });
                }
                match root.is_dir() {
                    true => {
                        // The formats of a request apply to the folders it names, or to all if it names none.
                        let request = if request.folders.is_empty() { request } else { &IndexRequest::default() };
                        sources.push(CollectionSource { include: self.include(request, &name, stored), name, root });
                    }
                    false if request.prune => forget.push(name),
                    false => return Err(IngestError::RootGone { collection: name, root }.into()),
                }
            }
        }
        if sources.is_empty() && forget.is_empty() {
            Err(EngineError::NothingToIndex { rebuild: request.rebuild })
        } else {
            Ok((sources, forget))
        }
    }

    /// Returns the formats that a collection includes.
    fn include(&self, request: &IndexRequest, name: &str, stored: Option<&Manifest>) -> Include {
        let of_settings = || self.settings.values.collections.get(name)?.include.clone();
        let of_last_time = || stored?.includes.get(name).cloned();
        request.include.clone().or_else(of_settings).or_else(of_last_time).unwrap_or_default()
    }

    pub(crate) async fn collection_of(&self, folder: &Path) -> Result<Option<String>, EngineError> {
        let index = Index::open(&self.location).await?;
        Ok(self.known_name(&self.named_root(folder)?, Some(index.manifest())))
    }

    /// Returns the full path of a folder that the user names.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::LinkOutside`] for a symbolic link of this project that leads out of it: the user named a
    /// place in the project.
    fn named_root(&self, folder: &Path) -> Result<PathBuf, EngineError> {
        // They differ if `--index` names the index of another project.
        let projects = [Some(self.project.as_path()), self.location.base()];
        match projects.into_iter().flatten().find_map(|project| leads_out_of(project, folder)) {
            Some(real) => Err(EngineError::LinkOutside { link: folder.to_path_buf(), real, was_folder: false }),
            None => canonical(folder),
        }
    }

    fn known_name(&self, root: &Path, stored: Option<&Manifest>) -> Option<String> {
        // In the stored form, which is relative inside a project, so that it holds after the project was moved.
        let root = self.location.store_root(root);
        let mut collections = stored?.collections.iter();
        collections.find(|(_, known)| **known == root).map(|(name, _)| name.clone())
    }

    /// Creates the folder of the index, and the `.dr` around it.
    fn make_folder(&self) -> Result<(), EngineError> {
        if let Some(dr) = self.location.dr_folder() {
            self.settings.paths.trust().make(dr)?;
        }
        self.location.folder().map_or(Ok(()), create_folder)
    }
}

fn canonical(folder: &Path) -> Result<PathBuf, EngineError> {
    let failed = |source| EngineError::Folder { action: "find", path: folder.to_path_buf(), source };
    // On Windows without the prefix `\\?\`, which the folder of the project does not have either.
    dunce::canonicalize(folder).map_err(failed)
}

fn folder_name(root: &Path) -> String {
    // `/` has no name.
    root.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
}
