//! The connection to the tables of an index, and to the objects next to them on an object store.

use std::error::Error;
use std::io::ErrorKind;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lance::dataset::ReadParams;
use lance::io::{ObjectStore, ObjectStoreParams, WrappingObjectStore};
use lancedb::connection::{ConnectBuilder, OpenTableBuilder};
use lancedb::{Connection, ObjectStoreRegistry, Session};

use super::cache::{BlockCache, Caching};
use super::lease::Site;
use super::service::ServiceAccess;
use super::{During, IndexError, IndexLocation};
use crate::base::environment::Environment;

/// Limits of LanceDB's caches, whose defaults are several gigabytes.
const INDEX_CACHE_BYTES: usize = 256 * 1024 * 1024;
const METADATA_CACHE_BYTES: usize = 64 * 1024 * 1024;

/// Names of local stores in errors of `object_store`.
const LOCAL_STORES: [&str; 2] = ["LocalFileSystem", "memory"];

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
        let connection = builder(location)?.execute().await.during("connect to the index")?;
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

fn builder(location: &IndexLocation) -> Result<ConnectBuilder, IndexError> {
    let builder = lancedb::connect(&location.to_string());
    if location.is_service() {
        let access = ServiceAccess::of(&Environment::of_process());
        let access = access.map_err(|source| IndexError::Access { location: location.to_string(), source })?;
        // The service may have cached a version from before the latest commit.
        return Ok(access.apply(builder).read_consistency_interval(Duration::ZERO));
    }
    // Without a consistency interval, a table that is open stays at its version: that makes an `Index` a snapshot.
    let session = Session::new(INDEX_CACHE_BYTES, METADATA_CACHE_BYTES, Arc::default());
    Ok(builder.session(Arc::new(session)))
}

fn caching(location: &IndexLocation) -> Option<Arc<dyn WrappingObjectStore>> {
    let IndexLocation::Remote { local: Some(local), .. } = location else { return None };
    // The service sends rows, not files.
    if local.cache_bytes == 0 || location.is_service() {
        return None;
    }
    Some(Arc::new(Caching(Arc::new(BlockCache::new(local.folder.join("blocks"), local.cache_bytes)))))
}

/// Returns where the leases of an index are, if it is on an object store.
pub(super) async fn site(location: &IndexLocation) -> Result<Option<Site>, IndexError> {
    let IndexLocation::Remote { uri, local } = location else { return Ok(None) };
    if location.is_service() {
        return Ok(None);
    }
    let registry = Arc::new(ObjectStoreRegistry::default());
    let opened = ObjectStore::from_uri_and_params(registry, uri, &ObjectStoreParams::default()).await;
    let (store, base) = opened.map_err(lancedb::Error::from).during("connect to the store")?;
    let local = local.as_ref().map(|local| local.folder.clone());
    Ok(Some(Site { store: Arc::clone(&store.inner), base, local }))
}

/// Returns whether an error comes from a request that an object store refused or did not answer. A missing object is
/// not such a failure.
pub(super) fn is_failed_request(error: &(dyn Error + 'static)) -> bool {
    match causes(error).next() {
        Some(object_store::Error::Generic { store, .. }) => !LOCAL_STORES.contains(store),
        Some(object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }) => true,
        Some(_) | None => false,
    }
}

/// Returns whether an error comes from a full disk.
pub(super) fn is_full(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|error: &std::io::Error| error.kind() == ErrorKind::StorageFull)
}

/// Returns the causes of an error that are of this type.
fn causes<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a E> {
    std::iter::successors(Some(error), |error| (*error).source()).filter_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kb::index::During;

    /// Returns an error of a store as the storage engine passes it on.
    fn error(error: object_store::Error) -> IndexError {
        let passed_on = lancedb::Error::from(lance::Error::from(error));
        Err::<(), _>(passed_on).during("read the index manifest").unwrap_err()
    }

    fn generic(store: &'static str) -> object_store::Error {
        object_store::Error::Generic { store, source: "503 Service Unavailable".into() }
    }

    #[test]
    fn failed_request_is_no_damage_and_a_missing_or_unreadable_file_is() {
        let remote = IndexLocation::Remote { uri: "s3://team/index".into(), local: None };
        let local = IndexLocation::in_folder(std::path::Path::new("/notes"));
        let denied = object_store::Error::PermissionDenied { path: "manifest.lance".into(), source: "403".into() };
        for failed in [generic("S3"), generic("MicrosoftAzure"), denied] {
            let error = error(failed);
            assert!(!error.is_damage(&remote), "{error:?}");
            assert_eq!(error.hint().unwrap(), "check the address, the credentials and the network");
        }
        let missing = object_store::Error::NotFound { path: "manifest.lance".into(), source: "404".into() };
        assert!(error(missing).is_damage(&remote));
        // The engine keeps small files in memory.
        for unreadable in [generic("LocalFileSystem"), generic("memory")] {
            let error = error(unreadable);
            assert!(error.is_damage(&local) && error.hint().unwrap().contains("--rebuild"), "{error:?}");
        }
    }

    #[test]
    fn full_disk_is_no_reason_to_rebuild() {
        let full = lancedb::Error::from(lance::Error::from(std::io::Error::from(ErrorKind::StorageFull)));
        let error = Err::<(), _>(full).during("replace chunks").unwrap_err();
        assert!(!error.is_damage(&IndexLocation::in_folder(std::path::Path::new("/notes"))), "{error:?}");
        assert_eq!(error.hint().unwrap(), "free some disk space, and run `dr index` again: what was committed is kept");
    }
}
