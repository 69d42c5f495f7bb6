//! The connection to the tables of an index, and to what is beside them on an object store.

use std::ops::Deref;
use std::sync::Arc;

use lance::dataset::ReadParams;
use lance::io::{ObjectStore, ObjectStoreParams, WrappingObjectStore};
use lancedb::connection::OpenTableBuilder;
use lancedb::{Connection, ObjectStoreRegistry, Session};

use super::cache::{BlockCache, Caching};
use super::lease::Site;
use super::{During, IndexError, IndexLocation};

/// Limits of LanceDB's caches, whose defaults are several gigabytes.
const INDEX_CACHE_BYTES: usize = 256 * 1024 * 1024;
const METADATA_CACHE_BYTES: usize = 64 * 1024 * 1024;

/// Scheme of LanceDB Cloud, which is no object store.
const CLOUD: &str = "db://";

/// A connection to the tables.
#[derive(Clone)]
pub(super) struct Tables {
    connection: Connection,
    caching: Option<Arc<dyn WrappingObjectStore>>,
}

impl Deref for Tables {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Tables {
    pub(super) async fn connect(location: &IndexLocation) -> Result<Self, IndexError> {
        // Without a consistency interval, a table that is open stays at its version: that makes an `Index` a snapshot.
        let session = Session::new(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES, Arc::default());
        let builder = lancedb::connect(&location.uri()).session(Arc::new(session));
        #[cfg(feature = "remote")]
        let builder = with_cloud_key(builder);
        let connection = builder.execute().await.during("connect to the index")?;
        Ok(Self { connection, caching: caching(location) })
    }

    /// Opens a table, whose files are cached if it is on an object store.
    pub(super) fn open(&self, name: impl Into<String>) -> OpenTableBuilder {
        let builder = self.connection.open_table(name);
        let Some(caching) = &self.caching else { return builder };
        let store = ObjectStoreParams { object_store_wrapper: Some(Arc::clone(caching)), ..Default::default() };
        builder.lance_read_params(ReadParams { store_options: Some(store), ..Default::default() })
    }
}

fn caching(location: &IndexLocation) -> Option<Arc<dyn WrappingObjectStore>> {
    let IndexLocation::Remote { uri, local: Some(local) } = location else { return None };
    if local.cache_bytes == 0 || uri.starts_with(CLOUD) {
        return None;
    }
    Some(Arc::new(Caching(Arc::new(BlockCache::new(local.folder.join("blocks"), local.cache_bytes)))))
}

/// Returns where the leases of an index are, if it is on an object store.
pub(super) async fn site(location: &IndexLocation) -> Result<Option<Site>, IndexError> {
    let IndexLocation::Remote { uri, local } = location else { return Ok(None) };
    if uri.starts_with(CLOUD) {
        return Ok(None);
    }
    let registry = Arc::new(ObjectStoreRegistry::default());
    let opened = ObjectStore::from_uri_and_params(registry, uri, &ObjectStoreParams::default()).await;
    let (store, base) = opened.map_err(lancedb::Error::from).during("connect to the store")?;
    let local = local.as_ref().map(|local| local.folder.clone());
    Ok(Some(Site { store: Arc::clone(&store.inner), base, local }))
}

/// Sets the key and region of LanceDB Cloud from the environment variables that its other clients use.
#[cfg(feature = "remote")]
fn with_cloud_key(mut builder: lancedb::connection::ConnectBuilder) -> lancedb::connection::ConnectBuilder {
    if let Ok(key) = std::env::var("LANCEDB_API_KEY") {
        builder = builder.api_key(&key);
    }
    if let Ok(region) = std::env::var("LANCEDB_REGION") {
        builder = builder.region(&region);
    }
    builder
}
