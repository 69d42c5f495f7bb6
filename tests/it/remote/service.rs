//! A fake of LanceDB's service: its REST protocol on loopback, over tables in a temporary folder.
//!
//! ```text
//! request ─▶ log ─▶ key ─▶ fault, if one is due ─▶ LanceDB ─▶ fault, if one loses the answer ─▶ response
//! ```
//!
//! The requests and answers are those in the source and the tests of the `lancedb` crate. What `dr` does not ask for is
//! answered with 501. Queries are evaluated by LanceDB itself. As in the service, an index does not cover the rows that
//! were written after it was built, until the service comes round to it ([`Service::maintain`]).

use std::io::Cursor;
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::sync::{Arc, Mutex};

use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::FileWriter;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::TryStreamExt;
use lance::arrow::json::JsonSchema;
use lancedb::index::Index;
use lancedb::index::scalar::{FtsIndexBuilder, FtsQuery, FullTextSearchQuery};
use lancedb::index::vector::IvfRqIndexBuilder;
use lancedb::query::{ExecutableQuery, QueryBase, Select};
use lancedb::table::{AddDataMode, OptimizeAction};
use lancedb::{Connection, DistanceType, Table};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The only key it accepts.
pub(super) const KEY: &str = "key-of-the-team";

/// The only database it has.
pub(super) const DATABASE: &str = "team";

/// Version of the protocol: the first with structured full-text queries is 0.3.0.
const PROTOCOL: &str = "0.6.0";

/// Longest address of a request; a common limit of servers and proxies.
const MAX_ADDRESS: usize = 8_000;

const ARROW_STREAM: &str = "application/vnd.apache.arrow.stream";
const ARROW_FILE: &str = "application/vnd.apache.arrow.file";

/// A received request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Path after the table, for example `merge_insert`; `list` for the list of tables.
    pub(super) call: String,
    pub(super) table: String,
    /// The JSON body; null if it is not JSON.
    pub(super) body: Value,
}

/// What goes wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The service is unavailable.
    Refused,
    /// The request is done, and its answer is lost.
    Lost,
}

type Faults = dyn Fn(&Asked) -> Option<Fault> + Send + Sync;

/// A running service. Stops when dropped.
pub(super) struct Service {
    address: SocketAddr,
    fake: Arc<Fake>,
    runtime: Option<Runtime>,
}

struct Fake {
    tables: Connection,
    /// Whether indexes that were asked for wait until [`Service::maintain`].
    is_late: bool,
    waiting: Mutex<Vec<(Table, String, Index)>>,
    folder: TempDir,
    log: Mutex<Vec<Asked>>,
    faults: Mutex<Arc<Faults>>,
}

impl Service {
    pub(super) fn start() -> Self {
        Self::new(false)
    }

    /// Starts a service that builds no index before [`Self::maintain`].
    pub(super) fn late() -> Self {
        Self::new(true)
    }

    fn new(is_late: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let folder = tempfile::Builder::new().prefix("dr-service-").tempdir().unwrap();
        let connect = lancedb::connect(folder.path().to_str().unwrap());
        let (listener, tables) = runtime.block_on(async {
            (tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap(), connect.execute().await.unwrap())
        });
        let address = listener.local_addr().unwrap();
        let faults: Arc<Faults> = Arc::new(|_: &Asked| None);
        let (log, waiting, faults) = (Mutex::default(), Mutex::default(), Mutex::new(faults));
        let fake = Arc::new(Fake { tables, is_late, waiting, folder, log, faults });
        let router = routes(Arc::clone(&fake));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { address, fake, runtime: Some(runtime) }
    }

    /// Returns the address for `LANCEDB_HOST_OVERRIDE`.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the folder of the tables, which is a local index too.
    pub(super) fn folder(&self) -> &FilePath {
        self.fake.folder.path()
    }

    /// Sets the function that decides the fault of each request. It may block.
    pub(super) fn set_faults(&self, faults: impl Fn(&Asked) -> Option<Fault> + Send + Sync + 'static) {
        *self.fake.faults.lock().unwrap() = Arc::new(faults);
    }

    /// Takes the requests since the last time.
    pub(super) fn take_log(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.fake.log.lock().unwrap())
    }

    /// Does what the service does in the background: builds and extends indexes, and compacts tables.
    pub(super) fn maintain(&self) {
        let waiting = std::mem::take(&mut *self.fake.waiting.lock().unwrap());
        let all = async {
            for (table, column, index) in waiting {
                table.checkout_latest().await.unwrap();
                table.create_index(&[&column], index).execute().await.unwrap();
            }
            for name in self.fake.tables.table_names().execute().await.unwrap() {
                let table = self.fake.tables.open_table(name).execute().await.unwrap();
                table.optimize(OptimizeAction::All).await.unwrap();
            }
        };
        self.runtime.as_ref().unwrap().block_on(all);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// An error as the service answers it.
struct Failure(StatusCode, String);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<lancedb::Error> for Failure {
    fn from(error: lancedb::Error) -> Self {
        let status = match error {
            lancedb::Error::TableNotFound { .. } => StatusCode::NOT_FOUND,
            lancedb::Error::TableAlreadyExists { .. } | lancedb::Error::InvalidInput { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<arrow::error::ArrowError> for Failure {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self(StatusCode::BAD_REQUEST, error.to_string())
    }
}

type Answer<T> = Result<T, Failure>;

/// The service and the name of a table.
type Named = (State<Arc<Fake>>, Path<String>);

/// A body of JSON; some requests have none.
type Parameters = Option<Json<Value>>;

fn routes(fake: Arc<Fake>) -> Router {
    let table = Router::new()
        .route("/create/", post(create))
        .route("/describe/", post(describe))
        .route("/drop/", post(drop_table))
        .route("/insert/", post(insert))
        .route("/merge_insert/", post(merge_insert))
        .route("/delete/", post(delete))
        .route("/count_rows/", post(count_rows))
        .route("/query/", post(query))
        .route("/stats/", post(stats))
        .route("/version/list/", post(list_versions))
        .route("/create_index/", post(create_index))
        .route("/index/{index}/stats/", post(index_stats));
    Router::new()
        .route("/v1/table/", get(list))
        .nest("/v1/table/{table}", table)
        .fallback(|| async { StatusCode::NOT_IMPLEMENTED })
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&fake), guard))
        .with_state(fake)
}

/// Logs a request, checks its key, and applies the fault that is due.
async fn guard(State(fake): State<Arc<Fake>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let path = parts.uri.path().trim_start_matches("/v1/table/").trim_end_matches('/').to_owned();
    let (table, call) = path.split_once('/').unwrap_or(("", "list"));
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    let asked = Asked { call: call.to_owned(), table: table.to_owned(), body };
    fake.log.lock().unwrap().push(asked.clone());
    let has = |name: &str, value: &str| parts.headers.get(name).is_some_and(|found| found == value);
    if !has("x-api-key", KEY) {
        return (StatusCode::UNAUTHORIZED, "Invalid API key").into_response();
    }
    if !has("x-lancedb-database", DATABASE) {
        return (StatusCode::NOT_FOUND, "no such database").into_response();
    }
    if parts.uri.to_string().len() > MAX_ADDRESS {
        return StatusCode::URI_TOO_LONG.into_response();
    }
    let faults = Arc::clone(&fake.faults.lock().unwrap());
    let fault = tokio::task::block_in_place(|| faults(&asked));
    if fault == Some(Fault::Refused) {
        return (StatusCode::SERVICE_UNAVAILABLE, "try again later").into_response();
    }
    let mut response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    if fault == Some(Fault::Lost) {
        return (StatusCode::BAD_GATEWAY, "upstream closed the connection").into_response();
    }
    response.headers_mut().insert("phalanx-version", PROTOCOL.parse().unwrap());
    response
}

impl Fake {
    /// Opens a table at the version that a request names, else at the latest.
    async fn table(&self, name: &str, parameters: &Parameters) -> Answer<Table> {
        let table = self.tables.open_table(name).execute().await?;
        let version = parameters.as_ref().and_then(|Json(body)| body["version"].as_u64());
        if let Some(version) = version {
            let missing = |error: lancedb::Error| Failure(StatusCode::NOT_FOUND, error.to_string());
            table.checkout(version).await.map_err(missing)?;
        }
        Ok(table)
    }
}

async fn list(State(fake): State<Arc<Fake>>) -> Answer<Json<Value>> {
    Ok(Json(json!({ "tables": fake.tables.table_names().execute().await? })))
}

async fn create((State(fake), Path(name)): Named, headers: HeaderMap, body: Bytes) -> Answer<()> {
    let (schema, batches) = rows(&headers, body)?;
    if batches.is_empty() {
        fake.tables.create_empty_table(name, schema).execute().await?;
    } else {
        fake.tables.create_table(name, batches).execute().await?;
    }
    Ok(())
}

async fn describe((State(fake), Path(name)): Named, parameters: Parameters) -> Answer<Json<Value>> {
    let table = fake.table(&name, &parameters).await?;
    let schema = JsonSchema::try_from(table.schema().await?.as_ref()).map_err(lancedb::Error::from)?;
    Ok(Json(json!({ "table": name, "version": table.version().await?, "schema": schema })))
}

async fn drop_table((State(fake), Path(name)): Named) -> Answer<()> {
    Ok(fake.tables.drop_table(&name, &[]).await?)
}

/// Parameters of an insertion, in the address.
#[derive(Deserialize)]
struct Insert {
    mode: Option<String>,
}

async fn insert(
    (State(fake), Path(name)): Named,
    Query(parameters): Query<Insert>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Json<Value>> {
    let (_, batches) = rows(&headers, body)?;
    let is_overwrite = parameters.mode.as_deref() == Some("overwrite");
    let mode = if is_overwrite { AddDataMode::Overwrite } else { AddDataMode::Append };
    let added = fake.table(&name, &None).await?.add(batches).mode(mode).execute().await?;
    Ok(Json(json!({ "version": added.version })))
}

/// Parameters of a merge, in the address.
#[derive(Deserialize)]
struct Merge {
    on: String,
    when_matched_update_all: bool,
    when_not_matched_insert_all: bool,
    when_not_matched_by_source_delete: bool,
    when_not_matched_by_source_delete_filt: Option<String>,
}

async fn merge_insert(
    (State(fake), Path(name)): Named,
    Query(parameters): Query<Merge>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer<Json<Value>> {
    let (schema, batches) = rows(&headers, body)?;
    let table = fake.table(&name, &None).await?;
    let mut merge = table.merge_insert(&[&parameters.on]);
    if parameters.when_matched_update_all {
        merge.when_matched_update_all(None);
    }
    if parameters.when_not_matched_insert_all {
        merge.when_not_matched_insert_all();
    }
    if parameters.when_not_matched_by_source_delete {
        merge.when_not_matched_by_source_delete(parameters.when_not_matched_by_source_delete_filt);
    }
    let batches = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    Ok(Json(serde_json::to_value(merge.execute(Box::new(batches)).await?)?))
}

async fn delete((State(fake), Path(name)): Named, Json(body): Json<Value>) -> Answer<Json<Value>> {
    let table = fake.table(&name, &None).await?;
    let deleted = table.delete(body["predicate"].as_str().unwrap_or_default()).await?;
    Ok(Json(serde_json::to_value(deleted)?))
}

async fn count_rows((State(fake), Path(name)): Named, parameters: Parameters) -> Answer<Json<usize>> {
    let table = fake.table(&name, &parameters).await?;
    let condition = parameters.and_then(|Json(body)| Some(body["predicate"].as_str()?.to_owned()));
    Ok(Json(table.count_rows(condition).await?))
}

/// The body of a query.
#[derive(Deserialize)]
struct Wanted {
    k: usize,
    #[serde(default)]
    vector: Vec<f32>,
    vector_column: Option<String>,
    filter: Option<String>,
    prefilter: bool,
    columns: Option<Vec<String>>,
    full_text_query: Option<FullText>,
    #[serde(default)]
    with_row_id: bool,
    distance_type: Option<DistanceType>,
    search_effort: Option<f64>,
    refine_factor: Option<u32>,
    #[serde(default)]
    bypass_vector_index: bool,
}

#[derive(Deserialize)]
struct FullText {
    query: FtsQuery,
}

async fn query((State(fake), Path(name)): Named, Json(body): Json<Value>) -> Answer<Response> {
    let wanted: Wanted = serde_json::from_value(body.clone())?;
    let table = fake.table(&name, &Some(Json(body))).await?;
    let plain = wanted.applied(table.query());
    let mut stream = if wanted.vector.is_empty() {
        plain.execute().await?
    } else {
        let mut query = plain.nearest_to(wanted.vector.as_slice())?;
        if let Some(column) = &wanted.vector_column {
            query = query.column(column);
        }
        if let Some(distance) = wanted.distance_type {
            query = query.distance_type(distance);
        }
        if let Some(factor) = wanted.refine_factor {
            query = query.refine_factor(factor);
        }
        query = query.search_effort(wanted.search_effort)?;
        if wanted.bypass_vector_index { query.bypass_vector_index() } else { query }.execute().await?
    };
    let mut writer = FileWriter::try_new(Vec::new(), &stream.schema())?;
    while let Some(batch) = stream.try_next().await? {
        writer.write(&batch)?;
    }
    Ok(([(CONTENT_TYPE, ARROW_FILE)], writer.into_inner()?).into_response())
}

impl Wanted {
    fn applied<Q: QueryBase>(&self, mut query: Q) -> Q {
        query = query.limit(self.k);
        if let Some(filter) = &self.filter {
            query = query.only_if(filter);
        }
        if !self.prefilter {
            query = query.postfilter();
        }
        if let Some(columns) = &self.columns {
            query = query.select(Select::columns(columns));
        }
        if let Some(text) = &self.full_text_query {
            query = query.full_text_search(FullTextSearchQuery::new_query(text.query.clone()));
        }
        if self.with_row_id { query.with_row_id() } else { query }
    }
}

async fn stats((State(fake), Path(name)): Named) -> Answer<Json<Value>> {
    let stats = fake.table(&name, &None).await?.stats().await?;
    let (fragments, lengths) = (&stats.fragment_stats, &stats.fragment_stats.lengths);
    Ok(Json(json!({
        "total_bytes": stats.total_bytes,
        "num_rows": stats.num_rows,
        "num_indices": stats.num_indices,
        "fragment_stats": {
            "num_fragments": fragments.num_fragments,
            "num_small_fragments": fragments.num_small_fragments,
            "lengths": {
                "min": lengths.min, "max": lengths.max, "mean": lengths.mean,
                "p25": lengths.p25, "p50": lengths.p50, "p75": lengths.p75, "p99": lengths.p99,
            },
        },
    })))
}

async fn list_versions((State(fake), Path(name)): Named) -> Answer<Json<Value>> {
    let versions = fake.table(&name, &None).await?.list_versions().await?;
    let shown = |version: &lancedb::table::Version| json!({ "version": version.version, "timestamp": version.timestamp.to_rfc3339(), "metadata": {} });
    Ok(Json(json!({ "versions": versions.iter().map(shown).collect::<Vec<_>>() })))
}

/// The body of a request for an index; an index of text has more.
#[derive(Deserialize)]
struct NewIndex {
    column: String,
    index_type: String,
    metric_type: Option<DistanceType>,
    num_partitions: Option<u32>,
    num_bits: Option<u32>,
}

async fn create_index((State(fake), Path(name)): Named, Json(body): Json<Value>) -> Answer<()> {
    let wanted: NewIndex = serde_json::from_value(body.clone())?;
    let index = match wanted.index_type.as_str() {
        "FTS" => Index::FTS(serde_json::from_value::<FtsIndexBuilder>(body)?),
        "IVF_RQ" => {
            let builder = IvfRqIndexBuilder::default().distance_type(wanted.metric_type.unwrap_or(DistanceType::L2));
            let builder = builder.num_partitions(wanted.num_partitions.unwrap_or(1));
            Index::IvfRq(builder.num_bits(wanted.num_bits.unwrap_or(1)))
        }
        other => return Err(Failure(StatusCode::NOT_IMPLEMENTED, other.to_owned())),
    };
    let table = fake.table(&name, &None).await?;
    if fake.is_late {
        fake.waiting.lock().unwrap().push((table, wanted.column, index));
        return Ok(());
    }
    Ok(table.create_index(&[&wanted.column], index).execute().await?)
}

async fn index_stats(
    State(fake): State<Arc<Fake>>,
    Path((name, index)): Path<(String, String)>,
    parameters: Parameters,
) -> Answer<Json<Value>> {
    let table = fake.table(&name, &parameters).await?;
    let missing = || Failure(StatusCode::NOT_FOUND, format!("no index {index}"));
    let stats = table.index_stats(&index).await?.ok_or_else(missing)?;
    let kind = if stats.distance_type.is_some() { "IVF_RQ" } else { "FTS" };
    Ok(Json(json!({
        "num_indexed_rows": stats.num_indexed_rows,
        "num_unindexed_rows": stats.num_unindexed_rows,
        "index_type": kind,
        "num_indices": stats.num_indices,
    })))
}

fn rows(headers: &HeaderMap, body: Bytes) -> Answer<(SchemaRef, Vec<RecordBatch>)> {
    if headers.get(CONTENT_TYPE).is_none_or(|kind| kind != ARROW_STREAM) {
        return Err(Failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected a stream of Arrow".to_owned()));
    }
    let reader = StreamReader::try_new(Cursor::new(body), None)?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    Ok((schema, batches.into_iter().filter(|batch| batch.num_rows() > 0).collect()))
}
