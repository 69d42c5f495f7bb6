//! A read-through cache on the local disk for the files of an index on an object store.
//!
//! Only files that never change are cached: their names are random ids. The manifests of the tables, which name the
//! latest version, are read from the store each time, so the cache is never stale. Files are kept in
//! blocks, because a search reads small parts of large files.
//!
//! ```text
//! FOLDER/HASH OF THE PATH/size      size of the file in the store
//! FOLDER/HASH OF THE PATH/N         block N with its hash
//! ```

use std::fmt;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use lance::io::WrappingObjectStore;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Extensions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tempfile::NamedTempFile;

use crate::base::folder::create_private;

/// Size of a block: reading this much from a store takes about as long as the request itself.
const BLOCK: u64 = 256 * 1024;

/// Largest read that is cached, since it is held in memory.
const LONGEST: u64 = 64 * 1024 * 1024;

/// Length of the hash before a block. A crash of the system may leave a block of the right length with other bytes.
const HASH: usize = blake3::OUT_LEN;

/// Age from which a read renews the timestamp of a block. The least recently used blocks are removed first.
const RENEWED_AFTER: Duration = Duration::from_mins(10);

/// A folder with blocks, shared by all stores of a connection.
#[derive(Debug)]
pub(super) struct BlockCache {
    folder: PathBuf,
    max_bytes: u64,
    /// Bytes written since the folder was last measured; it is measured first when the first block is written.
    written: AtomicU64,
}

impl BlockCache {
    /// Returns a cache in `folder`, which is created when the first block is written.
    pub(super) fn new(folder: PathBuf, max_bytes: u64) -> Self {
        Self { folder, max_bytes, written: AtomicU64::new(max_bytes) }
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.folder.join(&blake3::hash(path.as_ref().as_bytes()).to_hex()[..32])
    }

    fn size(&self, path: &Path) -> Option<u64> {
        let path = self.place(path).join("size");
        let size = fs::read_to_string(&path).ok()?.parse().ok()?;
        // It is read with every block, and without it all blocks are useless.
        renew(&path);
        Some(size)
    }

    /// Returns a part of a file if all of its blocks are cached.
    fn read(&self, path: &Path, range: &Range<u64>, size: u64) -> Option<Bytes> {
        let place = self.place(path);
        let mut bytes = Vec::with_capacity(usize::try_from(range.end - range.start).ok()?);
        for number in blocks(range) {
            let block = read_block(&place.join(number.to_string()))?;
            let start = number * BLOCK;
            if block.len() as u64 != BLOCK.min(size - start) {
                return None;
            }
            let at = |offset: u64| usize::try_from(offset.saturating_sub(start)).ok().map(|at| at.min(block.len()));
            bytes.extend_from_slice(&block[at(range.start)?..at(range.end)?]);
        }
        Some(bytes.into())
    }

    /// Caches the blocks that are complete in `bytes`, which begin at `start` in a file of this size. If the disk is
    /// full or read-only, the next read goes to the store again.
    fn keep(&self, path: &Path, start: u64, bytes: &[u8], size: u64) -> std::io::Result<()> {
        let place = self.place(path);
        create_private(&place)?;
        let end = start + bytes.len() as u64;
        for number in start.div_ceil(BLOCK)..end.div_ceil(BLOCK) {
            let block = number * BLOCK..size.min((number + 1) * BLOCK);
            if block.end > end {
                break;
            }
            let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
            let block = &bytes[at(block.start)..at(block.end)];
            write(&place, &number.to_string(), &[blake3::hash(block).as_bytes(), block])?;
            self.written.fetch_add((HASH + block.len()) as u64, Ordering::Relaxed);
        }
        write(&place, "size", &[size.to_string().as_bytes()])?;
        // Measured often enough that the folder exceeds its limit by a tenth at most.
        if self.written.load(Ordering::Relaxed) > self.max_bytes / 10 {
            self.written.store(0, Ordering::Relaxed);
            self.shrink();
        }
        Ok(())
    }

    /// Removes the blocks that were used least recently, until the folder is a tenth below its limit.
    fn shrink(&self) {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = files.flat_map(|place| fs::read_dir(place.path()).into_iter().flatten().flatten());
        let mut found: Vec<_> = files
            .filter_map(|file| {
                let metadata = file.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), file.path()))
            })
            .collect();
        let mut total: u64 = found.iter().map(|(_, length, _)| length).sum();
        if total <= self.max_bytes {
            return;
        }
        found.sort();
        for (_, length, path) in found {
            if total <= self.max_bytes / 10 * 9 {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                total -= length;
                // Fails unless it is empty.
                let _ = path.parent().map(fs::remove_dir);
            }
        }
    }
}

fn read_block(path: &FilePath) -> Option<Vec<u8>> {
    let mut block = fs::read(path).ok()?;
    let hash: [u8; HASH] = block.get(..HASH)?.try_into().ok()?;
    block.drain(..HASH);
    if blake3::hash(&block) != hash {
        return None;
    }
    renew(path);
    Some(block)
}

/// Notes that a file was used.
fn renew(path: &FilePath) {
    let now = SystemTime::now();
    let is_old = |used: SystemTime| now.duration_since(used).is_ok_and(|age| age > RENEWED_AFTER);
    if path.metadata().and_then(|metadata| metadata.modified()).is_ok_and(is_old) {
        let _ = fs::File::options().write(true).open(path).and_then(|file| file.set_modified(now));
    }
}

/// Writes a file atomically. Not synchronised with the disk, since it can be fetched again.
fn write(folder: &FilePath, name: &str, parts: &[&[u8]]) -> std::io::Result<()> {
    let mut file = NamedTempFile::new_in(folder)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.persist(folder.join(name))?;
    Ok(())
}

fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

/// Returns whether a file of a table never changes: its data, its deletions and its indexes.
fn is_fixed(path: &Path) -> bool {
    let parts: Vec<_> = path.parts().collect();
    let is_table = |name: &str| name.rsplit_once('.').is_some_and(|(_, extension)| extension == "lance");
    let table = parts.iter().position(|part| is_table(part.as_ref()));
    let folder = table.and_then(|table| parts.get(table + 1));
    folder.is_some_and(|folder| ["data", "_deletions", "_indices"].contains(&folder.as_ref()))
}

/// Inserts the cache between the storage engine and its stores.
#[derive(Debug)]
pub(super) struct Caching(pub(super) Arc<BlockCache>);

impl WrappingObjectStore for Caching {
    fn wrap(&self, _: &str, original: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(CachedStore { cache: Arc::clone(&self.0), store: original })
    }

    fn wrap_paginated(&self, _: &str, original: Arc<dyn PaginatedListStore>) -> Option<Arc<dyn PaginatedListStore>> {
        Some(original)
    }
}

#[derive(Debug)]
struct CachedStore {
    cache: Arc<BlockCache>,
    store: Arc<dyn ObjectStore>,
}

impl fmt::Display for CachedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with a cache", self.store)
    }
}

impl CachedStore {
    /// Answers a read from the cache.
    async fn cached(&self, path: &Path, asked: Option<Range<u64>>) -> Option<GetResult> {
        let (cache, location) = (Arc::clone(&self.cache), path.clone());
        let read = move || {
            let size = cache.size(&location)?;
            let range = asked.map_or(0..size, |range| range.start.min(size)..range.end.min(size));
            Some((cache.read(&location, &range, size)?, range, size))
        };
        let (bytes, range, size) = tokio::task::spawn_blocking(read).await.ok().flatten()?;
        Some(result(path, bytes, range, size))
    }
}

fn result(path: &Path, bytes: Bytes, range: Range<u64>, size: u64) -> GetResult {
    let last_modified = SystemTime::UNIX_EPOCH.into();
    GetResult {
        payload: GetResultPayload::Stream(futures::stream::once(async { Ok(bytes) }).boxed()),
        meta: ObjectMeta { location: path.clone(), last_modified, size, e_tag: None, version: None },
        range,
        attributes: Attributes::default(),
        extensions: Extensions::default(),
    }
}

#[async_trait]
impl ObjectStore for CachedStore {
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let GetOptions { if_match, if_none_match, if_modified_since, if_unmodified_since, version, head, .. } =
            &options;
        // The cache keeps neither entity tags nor dates, so only the store can answer a conditional request.
        let is_plain = if_match.is_none() && if_none_match.is_none() && version.is_none() && !head;
        let is_plain = is_plain && if_modified_since.is_none() && if_unmodified_since.is_none();
        let asked = match &options.range {
            None => None,
            Some(GetRange::Bounded(range)) if range.end - range.start <= LONGEST => Some(range.clone()),
            Some(_) => return self.store.get_opts(path, options).await,
        };
        if !is_plain || !is_fixed(path) {
            return self.store.get_opts(path, options).await;
        }
        if let Some(found) = self.cached(path, asked.clone()).await {
            return Ok(found);
        }
        // Whole blocks, so that they can be cached.
        let wider = asked.as_ref().map(|range| {
            let blocks = blocks(range);
            GetRange::Bounded(blocks.start * BLOCK..blocks.end * BLOCK)
        });
        let found = self.store.get_opts(path, GetOptions { range: wider, ..options }).await?;
        // Widening adds up to a block at each end. Only a read of a whole file can be longer.
        if found.range.end - found.range.start > LONGEST + 2 * BLOCK {
            return Ok(found);
        }
        let (size, start) = (found.meta.size, found.range.start);
        let asked = asked.map_or(0..size, |range| range.start.min(size)..range.end.min(size));
        let bytes = found.bytes().await?;
        let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX).min(bytes.len());
        let part = bytes.slice(at(asked.start)..at(asked.end));
        let (cache, location) = (Arc::clone(&self.cache), path.clone());
        let kept = tokio::task::spawn_blocking(move || cache.keep(&location, start, &bytes, size));
        if let Ok(Err(error)) = kept.await {
            tracing::debug!(%error, "failed to keep a part of the index on this machine");
        }
        Ok(result(path, part, asked, size))
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.store.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    const FIXED: &str = "kb/chunks_1.lance/data/1f.lance";

    fn bytes(length: u64) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    struct World {
        folder: tempfile::TempDir,
        store: Arc<InMemory>,
        cached: Arc<dyn ObjectStore>,
    }

    fn world(max_bytes: u64) -> World {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(InMemory::new());
        let cache = Arc::new(BlockCache::new(folder.path().join("blocks"), max_bytes));
        let cached = Caching(cache).wrap("", Arc::clone(&store) as Arc<dyn ObjectStore>);
        World { folder, store, cached }
    }

    fn kept(world: &World) -> u64 {
        let files = fs::read_dir(world.folder.path().join("blocks")).into_iter().flatten().flatten();
        let files = files.flat_map(|place| fs::read_dir(place.path()).unwrap().flatten());
        files.map(|file| file.metadata().unwrap().len()).sum()
    }

    #[tokio::test]
    async fn second_read_of_a_part_needs_no_store_and_is_the_same() {
        let world = world(1 << 30);
        let (path, file) = (Path::from(FIXED), bytes(3 * BLOCK + 1_000));
        world.store.put(&path, file.clone().into()).await.unwrap();
        let end = file.len() as u64;
        let part = |range: &Range<u64>| {
            let at = |offset: u64| usize::try_from(offset).unwrap();
            file[at(range.start)..at(range.end)].to_vec()
        };
        let ranges = [0..10, BLOCK - 5..BLOCK + 5, 2 * BLOCK + 7..end, end - 8..end];
        for range in ranges.clone() {
            let read = world.cached.get_range(&path, range.clone()).await.unwrap();
            assert_eq!(read, part(&range), "{range:?}");
        }
        world.store.delete(&path).await.unwrap();
        for range in ranges {
            let read = world.cached.get_range(&path, range.clone()).await.unwrap();
            assert_eq!(read, part(&range), "{range:?}");
        }
        assert_eq!(world.cached.get(&path).await.unwrap().bytes().await.unwrap(), file, "every block is here by now");
    }

    #[tokio::test]
    async fn manifest_of_a_table_is_read_from_the_store_each_time() {
        let world = world(1 << 30);
        for path in ["kb/chunks_1.lance/_versions/9.manifest", "kb/leases/data/index.json", "data/a.lance"] {
            let path = Path::from(path);
            for text in ["old", "new"] {
                world.store.put(&path, text.into()).await.unwrap();
                assert_eq!(world.cached.get(&path).await.unwrap().bytes().await.unwrap(), text, "{path}");
            }
        }
        assert_eq!(kept(&world), 0);
    }

    #[tokio::test]
    async fn folder_stays_below_its_limit_and_keeps_what_was_read_last() {
        let world = world(4 * BLOCK);
        for number in 0..20 {
            let path = Path::from(format!("kb/chunks_1.lance/data/{number}.lance"));
            world.store.put(&path, bytes(BLOCK).into()).await.unwrap();
            world.cached.get(&path).await.unwrap();
            assert!(kept(&world) <= 4 * BLOCK + BLOCK / 2, "{number}: {}", kept(&world));
        }
        let last = Path::from("kb/chunks_1.lance/data/19.lance");
        world.store.delete(&last).await.unwrap();
        world.cached.get(&last).await.unwrap();
    }

    #[tokio::test]
    async fn damaged_block_is_read_from_the_store() {
        let world = world(1 << 30);
        let (path, file) = (Path::from(FIXED), bytes(1_000));
        world.store.put(&path, file.clone().into()).await.unwrap();
        world.cached.get(&path).await.unwrap();
        let cache = BlockCache::new(world.folder.path().join("blocks"), 0);
        let block = cache.place(&path).join("0");
        for damaged in [vec![], vec![0; HASH + 1_000], fs::read(&block).unwrap()[..500].to_vec()] {
            fs::write(&block, damaged).unwrap();
            assert_eq!(world.cached.get(&path).await.unwrap().bytes().await.unwrap(), file);
        }
    }

    #[tokio::test]
    async fn folder_that_cannot_be_written_costs_only_time() {
        let world = world(1 << 30);
        fs::write(world.folder.path().join("blocks"), "in the way").unwrap();
        let path = Path::from(FIXED);
        world.store.put(&path, bytes(9).into()).await.unwrap();
        assert_eq!(world.cached.get_range(&path, 2..4).await.unwrap(), vec![2, 3]);
    }
}
