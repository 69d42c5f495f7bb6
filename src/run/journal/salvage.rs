//! Copies everything that SQLite can still read of a damaged journal into a new one.
//!
//! ```text
//! state.db ─copy─▶ header mended ─▶ rows, and events on scattered pages ─▶ new database ─▶ state.db.repaired ─▶ state.db
//!     └─────────────────────────────────────────────────────────────────▶ state.db.damaged
//! ```
//!
//! A run keeps its events up to the first that is lost: the run was once in that state, so it can be shown and resumed.
//! Rows of the other tables are kept one by one. The rest of a run without its first event, which has its question and
//! settings, is written to a file of JSON lines beside the damaged database.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Display;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::calls::{CallRole, CallState, JobEndpoint, ProviderKind};
use super::lookups::{BROKEN_JOB, LookupTool};
use super::{
    Journal, JournalError, MIGRATIONS, Plain, copy_with_log, during, in_file, lock_file, migrate, optional_json, plain,
    side_file,
};
use crate::base::clock::Moment;
use crate::base::file::unless_missing;
use crate::base::folder::{open_private, write_private};
use crate::base::id::{JobId, NodeId, RunId};
use crate::base::lock::FileLock;
use crate::base::step::Step;
use crate::llm::message::{Reply, Role, Usage};
use crate::run::budget::Purpose;
use crate::run::event::{Event, Record};
use crate::source::Label;

/// Size of a page in every journal: SQLite's default, which `dr` never changed.
const PAGE_BYTES: usize = 4_096;

/// End of the name of a database that is complete and about to replace the damaged one.
const REPAIRED: &str = ".repaired";

/// End of its name if the database that it was made from has been replaced in the meantime.
const UNUSED: &str = ".repaired-unused";

/// Start of the name of a folder with the copies that a salvage works on.
const WORK: &str = ".salvage-";

/// Attempts to read around damage in one table. Each costs a seek.
const MAX_ATTEMPTS: usize = 20_000;

/// Limit on the rows read from scattered pages. Pages of a forged database can lead to one another without end.
const MAX_SCATTERED: usize = 2_000_000;

/// How a column of a call is mended: its name, whether a row has a value of it that can be read, and the SQL of the value
/// that takes its place otherwise.
type Mend = (&'static str, fn(&Row<'_>, &str) -> bool, String);

/// Returns the mends of an unreadable call, in the order they are made: later ones rely on earlier ones. Each value is the
/// strictest that the rest of the journal supports. The call stays charged, counts as internal, and serves the same
/// request again if its reply is left.
///
/// A call must not become cheaper than it may have been. Its worst case fitted the limits the run had at the time, so
/// the largest limit the run ever had bounds it. A run without that limit cannot exceed it; the largest worst case of
/// its other calls is the best estimate left.
///
/// A job must not be bought again because its call was damaged. One with an id is polled again, see
/// [`CallRow::job_to_poll`](super::CallRow::job_to_poll); one without may have been started.
fn mends() -> [Mend; 16] {
    let owner = "CASE WHEN key GLOB 'n[1-9]*/*' AND NOT substr(key, 2, instr(key, '/') - 2) GLOB '*[^0-9]*'
        THEN substr(key, 1, instr(key, '/') - 1) END";
    let most = |column: &str, limit: &str| {
        format!(
            "SELECT max(amount) FROM (
                SELECT {column} AS amount FROM calls AS other WHERE other.run = calls.run
                UNION ALL SELECT CAST(coalesce(body ->> '$.settings.limits.{limit}', body ->> '$.limits.{limit}') AS INTEGER)
                FROM events WHERE events.run = calls.run AND body ->> 'type' IN ('started', 'resumed')
            ) WHERE amount >= 0"
        )
    };
    let is_job = format!("key = node || '/{}'", Step::Research);
    let (job, worker) = (word(CallRole::Researcher), word(CallRole::Model(Role::Worker)));
    let value = |sql: &str| sql.to_owned();
    [
        ("node", is_plain::<Option<NodeId>>, value(owner)),
        ("role", is_plain::<CallRole>, format!("iif({is_job}, {job}, {worker})")),
        ("purpose", is_plain::<Purpose>, word(Purpose::Research)),
        ("label", is_plain::<Label>, word(Label::Internal)),
        ("counted_tokens", is_plain::<u64>, value("0")),
        (
            "worst_tokens",
            is_plain::<u64>,
            format!("max(counted_tokens, coalesce(({}), 0))", most("worst_tokens", "tokens")),
        ),
        ("worst_cost", is_plain::<Option<u64>>, format!("({})", most("worst_cost", "cost_nanos"))),
        ("cost", is_plain::<Option<u64>>, value("worst_cost")),
        ("sent_at", is_plain::<Moment>, value("0")),
        ("ended_at", is_plain::<Option<Moment>>, value("NULL")),
        ("usage", is_json::<Usage>, value("NULL")),
        ("job", is_plain::<Option<JobId>>, value("NULL")),
        ("provider", is_plain::<Option<ProviderKind>>, value("NULL")),
        ("endpoint", is_json::<JobEndpoint>, value("NULL")),
        ("reply", is_json::<Reply>, value("NULL")),
        (
            "outcome",
            is_outcome,
            format!(
                "CASE WHEN reply IS NOT NULL THEN {} WHEN job IS NULL AND {is_job} THEN {} ELSE {} END",
                word(CallState::Replied),
                word(CallState::Unknown),
                word(CallState::Damaged),
            ),
        ),
    ]
}

/// Returns the word of an enum as text of SQL.
fn word(word: impl Display) -> String {
    format!("'{word}'")
}

fn is_plain<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> bool {
    plain::<T>(row, column).is_ok()
}

fn is_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> bool {
    optional_json::<T>(row, column).is_ok()
}

/// Returns whether the outcome can be read, and is not that of a call whose reply is lost.
fn is_outcome(row: &Row<'_>, column: &str) -> bool {
    let has_reply = optional_json::<Reply>(row, "reply").is_ok_and(|reply| reply.is_some());
    plain(row, column).is_ok_and(|state: CallState| state != CallState::Replied || has_reply)
}

/// Restores the number of the call in an unreadable answer of a background job.
const FIND_JOB: &str = "UPDATE lookups SET result = coalesce((
        SELECT CAST(calls.id AS TEXT) FROM calls WHERE calls.run = lookups.run AND calls.job IS NOT NULL AND
        calls.node = lookups.node ORDER BY calls.id DESC LIMIT 1
    ), '')";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Salvaged {
    /// The damaged database, which is kept.
    pub(crate) damaged: PathBuf,
    /// Runs in the new journal.
    pub(crate) runs: usize,
    /// Losses, one line each.
    pub(crate) lost: Vec<String>,
}

impl Journal {
    /// Replaces the database at `path` by a new one with all rows that can still be read. The damaged file stays beside
    /// it. `is_run` returns whether events are those of a run.
    ///
    /// # Errors
    ///
    /// Returns an error if a process uses the journal, or files cannot be copied or written. The database at `path` is
    /// then unchanged.
    pub(crate) fn salvage(path: &Path, is_run: impl Fn(&[Record]) -> bool) -> Result<Salvaged, JournalError> {
        let failed = in_file("repair", path);
        let _alone = FileLock::take(&lock_file(path))?;
        complete_repair(path).map_err(failed)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        tracing::debug!("saving what can still be read");
        // Under the lock: no other repair is using them.
        remove_leftovers(folder);
        // Beside the journal: its result is renamed into place, which works within one file system only.
        let work = tempfile::Builder::new().prefix(WORK).tempdir_in(folder).map_err(failed)?;
        let (copy, fresh) = (work.path().join("damaged.db"), work.path().join("state.db"));
        copy_with_log(path, &copy).map_err(failed)?;
        mend_header(&copy).map_err(failed)?;
        let mut salvage = Salvage::begin(&copy, &fresh)?;
        salvage.runs(is_run)?;
        for table in ["calls", "lookups", "egress"] {
            salvage.table(table)?;
        }
        let remains = std::mem::take(&mut salvage.remains);
        let mut salvaged = salvage.finish()?;
        // Opening migrates an older format.
        Journal::open(&fresh)?.drop_unreadable(&mut salvaged.lost)?;
        // Only now: a repair that fails before leaves no second copy of the journal behind.
        salvaged.damaged = keep_damaged(path).map_err(failed)?;
        if !remains.is_empty() {
            let file = side_file(&salvaged.damaged, ".jsonl");
            write_private(&file, (remains.join("\n") + "\n").as_bytes()).map_err(failed)?;
            salvaged.lost.push(format!("remains of runs without a first event are in `{}`", file.display()));
        }
        replace_by(&fresh, path).map_err(failed)?;
        Ok(salvaged)
    }

    /// Mends calls whose values this version cannot read, since they were charged, and removes such lookups.
    fn drop_unreadable(self, lost: &mut Vec<String>) -> Result<(), JournalError> {
        self.database.write(|connection| {
            // One transaction: with one for each row, each would be flushed to disk.
            let transaction = connection.unchecked_transaction()?;
            let mut statement = connection.prepare("SELECT id FROM calls")?;
            let ids: Vec<i64> = statement.query_map([], |row| row.get("id"))?.collect::<Result<_, _>>()?;
            let sql = format!("SELECT {}, reply FROM calls WHERE id = ?1", super::calls::CALL_COLUMNS);
            let is_readable = |id: i64| connection.query_row(&sql, [id], super::calls::call_row).is_ok();
            let mends = mends();
            for id in ids.into_iter().filter(|id| !is_readable(*id)) {
                let mut mended = Vec::new();
                for (column, can_be_read, value) in &mends {
                    if !connection.query_row(&sql, [id], |row| Ok(can_be_read(row, column)))? {
                        connection.execute(&format!("UPDATE calls SET {column} = {value} WHERE id = ?1"), [id])?;
                        mended.push(*column);
                    }
                }
                if is_readable(id) {
                    lost.push(format!("{} of call {id}", mended.join(" and ")));
                } else {
                    lost.push(format!("call {id}"));
                    // Lists of calls are read as a whole, so one such row would make the run unreadable.
                    connection.execute("DELETE FROM calls WHERE id = ?1", [id])?;
                }
            }
            // Rows of the egress log may be lost, so that it does not prove any more that a job was not started.
            let (unknown, sent, job) = (word(CallState::Unknown), word(CallState::Sent), word(CallRole::Researcher));
            let in_doubt = format!("outcome = {sent} AND role = {job} AND job IS NULL");
            connection.execute(&format!("UPDATE calls SET outcome = {unknown} WHERE {in_doubt}"), [])?;
            let find = format!("{FIND_JOB} WHERE {BROKEN_JOB}");
            connection.execute(&find, [Plain(LookupTool::DeepResearch)])?;
            let unusable = "DELETE FROM lookups WHERE result IS NOT NULL AND NOT json_valid(result)";
            let dropped = connection.execute(unusable, [])?;
            if dropped > 0 {
                lost.push(format!("{dropped} cached answers"));
            }
            transaction.commit()
        })
    }
}

struct Salvage {
    damaged: Connection,
    fresh: Connection,
    kept: BTreeSet<String>,
    lost: Vec<String>,
    /// Readable events and rows of the other runs, one line of JSON each.
    remains: Vec<String>,
}

impl Salvage {
    fn begin(damaged: &Path, fresh: &Path) -> Result<Self, JournalError> {
        let open = during("open");
        open_private(fresh).map_err(in_file("create", fresh))?;
        let mut fresh = Connection::open(fresh).map_err(&open)?;
        let mut damaged_db = tolerant(damaged).map_err(&open)?;
        if damaged_db.prepare("SELECT id FROM runs").is_err() {
            drop(damaged_db);
            // Page 1 holds the tables' definitions and where each begins. A journal that was made by this version has
            // the same ones at the same place.
            replace_first_page(damaged).map_err(in_file("repair", damaged))?;
            damaged_db = tolerant(damaged).map_err(&open)?;
        }
        let version = super::version(&damaged_db).unwrap_or(MIGRATIONS.len()).clamp(1, MIGRATIONS.len());
        migrate(&mut fresh, &MIGRATIONS[..version]).map_err(&open)?;
        // Rows may refer to others that are lost.
        fresh.pragma_update(None, "foreign_keys", false).map_err(&open)?;
        // One transaction: with one for each row, each would be flushed to disk.
        fresh.execute_batch("BEGIN").map_err(&open)?;
        Ok(Self { damaged: damaged_db, fresh, kept: BTreeSet::new(), lost: Vec::new(), remains: Vec::new() })
    }

    fn finish(self) -> Result<Salvaged, JournalError> {
        let write = during("write to");
        self.fresh.execute_batch("COMMIT").map_err(&write)?;
        self.fresh.close().map_err(|(_, source)| write(source))?;
        Ok(Salvaged { damaged: PathBuf::new(), runs: self.kept.len(), lost: self.lost })
    }

    /// Copies each run with its events, up to the first event that is missing or does not fit.
    fn runs(&mut self, is_run: impl Fn(&[Record]) -> bool) -> Result<(), JournalError> {
        let write = during("write to");
        let mut ids: BTreeSet<String> = BTreeSet::new();
        let listed = Table { name: "runs", key: "rowid", condition: "1" };
        listed.read(&self.damaged, &["id"], |row| ids.extend(text(row, "id")));
        ids.extend(runs_with_events(&self.damaged));
        let mut scattered = self.scattered();
        ids.extend(scattered.keys().cloned());
        for id in ids {
            let Ok(run) = id.parse::<RunId>() else {
                self.lost.push("a run whose id cannot be read".to_owned());
                continue;
            };
            let mut records: Vec<Record> = Vec::new();
            let events = Table { name: "events", key: "seq", condition: "run = ?3" };
            let (of_run, all) = ([Value::Text(id.clone())], (i64::MIN, i64::MAX));
            let take = &mut |row: &Row<'_>| records.extend(record(row));
            let (_, is_whole) = events.range(&self.damaged, &["at", "body"], &of_run, all, "ASC", take);
            records.extend(scattered.remove(&id).unwrap_or_default().into_values());
            records.sort_by_key(|record| record.seq);
            records.dedup_by_key(|record| record.seq);
            let found = records.len();
            // If events are those of a run, so are the events before each of them.
            let lengths: Vec<usize> = (1..=found).collect();
            let rest = records.split_off(lengths.partition_point(|length| is_run(&records[..*length])));
            let Some(Record { at, event: Event::Started { question, .. }, .. }) = records.first() else {
                self.lost.push(format!("run {run}: its first event cannot be read"));
                let line = |record| json!({ "kind": "event", "run": run, "record": record }).to_string();
                self.remains.extend(rest.iter().map(line));
                continue;
            };
            let sql = "INSERT INTO runs (id, question, started_at) VALUES (?1, ?2, ?3)";
            let started = i64::try_from(at.0).unwrap_or_default();
            self.fresh.execute(sql, (run.as_str(), question.as_str(), started)).map_err(&write)?;
            // The hash is kept as it is: if texts that left are lost, their record must not look whole.
            let head = "SELECT egress_head FROM runs WHERE id = ?1";
            if let Ok(head) = self.damaged.query_row(head, [run.as_str()], |row| row.get::<_, String>("egress_head")) {
                let sql = "UPDATE runs SET egress_head = ?1 WHERE id = ?2";
                self.fresh.execute(sql, [head.as_str(), run.as_str()]).map_err(&write)?;
            }
            for Record { seq, at, event } in &records {
                let body = serde_json::to_string(event)?;
                let sql = "INSERT INTO events (run, seq, at, body) VALUES (?1, ?2, ?3, ?4)";
                let number = |number: u64| i64::try_from(number).unwrap_or_default();
                self.fresh.execute(sql, (run.as_str(), number(*seq), number(at.0), body)).map_err(&write)?;
            }
            if !is_whole || records.len() < found {
                let last = records.len();
                self.lost
                    .push(format!("run {run}: events after number {last}; `dr resume {run}` continues from there"));
            }
            self.kept.insert(id);
        }
        Ok(())
    }

    /// Reads the events on all pages that look like those of the table, by run and number. The table may not lead to a
    /// page any more: the page above it is damaged, or was behind the end of the file.
    fn scattered(&self) -> BTreeMap<String, BTreeMap<u64, Record>> {
        let mut found = BTreeMap::new();
        let sql = "SELECT rootpage FROM sqlite_master WHERE name = 'events'";
        let root = self.damaged.query_row(sql, [], |row| row.get("rootpage"));
        if let (Ok(root), Some(damaged)) = (root, self.damaged.path().map(Path::new))
            && let Err(error) = read_scattered(damaged, root, &mut found)
        {
            tracing::warn!(%error, "scattered pages could not be read");
        }
        found
    }

    /// Copies the rows of a table that belong to a run which was kept.
    fn table(&mut self, name: &'static str) -> Result<(), JournalError> {
        let known = columns(&self.damaged, name);
        let mut wanted = columns(&self.fresh, name);
        wanted.retain(|column| known.iter().any(|known| known.name == column.name));
        let columns: Vec<&str> = wanted.iter().map(|column| column.name.as_str()).collect();
        let Some(of_run) = columns.iter().position(|name| *name == "run") else { return Ok(()) };
        let marks: Vec<_> = (1..=columns.len()).map(|number| format!("?{number}")).collect();
        let sql = format!("INSERT INTO {name} ({}) VALUES ({})", columns.join(", "), marks.join(", "));
        let mut insert = self.fresh.prepare(&sql).map_err(during("write to"))?;
        let mut unreadable = 0_usize;
        let table = Table { name, key: "rowid", condition: "1" };
        let is_whole = table.read(&self.damaged, &columns, |row| {
            // The key is the first column of the result.
            let values: Option<Vec<Value>> = (1..=columns.len()).map(|at| value(row, at)).collect();
            match values {
                Some(mut values) if matches!(&values[of_run], Value::Text(run) if self.kept.contains(run)) => {
                    if name == "calls" {
                        // All of them, since they were charged.
                        values = values.into_iter().zip(&wanted).map(|(value, column)| column.fit(value)).collect();
                    }
                    // A value of the wrong type is refused by the table.
                    unreadable += usize::from(insert.execute(params_from_iter(values)).is_err());
                }
                Some(values) => {
                    let fields = columns.iter().map(|name| (*name).to_owned()).zip(values.into_iter().map(plain_json));
                    let row: serde_json::Map<_, _> = fields.collect();
                    self.remains.push(json!({ "kind": name, "row": row }).to_string());
                }
                None => unreadable += 1,
            }
        });
        drop(insert);
        if !is_whole {
            self.lost.push(format!("some rows of table `{name}`"));
        } else if unreadable > 0 {
            self.lost.push(format!("{unreadable} rows of table `{name}`"));
        }
        Ok(())
    }
}

/// A table with a number that orders its rows.
struct Table {
    name: &'static str,
    key: &'static str,
    condition: &'static str,
}

impl Table {
    /// Reads every row that SQLite can still reach: from both ends up to the damage, then the rest by halves.
    /// Returns whether nothing failed.
    fn read(&self, connection: &Connection, columns: &[&str], mut take: impl FnMut(&Row<'_>)) -> bool {
        let mut is_whole = true;
        let mut attempts = 0;
        let mut open = vec![(i64::MIN, i64::MAX)];
        while let Some((from, to)) = open.pop() {
            attempts += 1;
            if from > to || attempts > MAX_ATTEMPTS {
                continue;
            }
            let (first, is_read) = self.range(connection, columns, &[], (from, to), "ASC", &mut take);
            if is_read {
                continue;
            }
            is_whole = false;
            let from = first.map_or(from, |key| key.saturating_add(1));
            let (last, is_read) = self.range(connection, columns, &[], (from, to), "DESC", &mut take);
            let to = last.map_or(to, |key| key.saturating_sub(1));
            // Keys are counted from 1; the ends of the number range hold none.
            let (from, to) = (from.max(0), if to == i64::MAX { self.last(connection).unwrap_or(1 << 20) } else { to });
            if !is_read && from < to {
                let middle = from + (to - from) / 2;
                open.extend([(from, middle), (middle + 1, to)]);
            }
        }
        is_whole
    }

    fn last(&self, connection: &Connection) -> Option<i64> {
        connection.query_row(&format!("SELECT max({}) FROM {}", self.key, self.name), [], |row| row.get(0)).ok()
    }

    /// Reads the rows of a range until one fails. Returns the key of the last row read, and whether all were.
    fn range(
        &self,
        connection: &Connection,
        columns: &[&str],
        more: &[Value],
        (from, to): (i64, i64),
        order: &str,
        take: &mut impl FnMut(&Row<'_>),
    ) -> (Option<i64>, bool) {
        let Self { name, key, condition } = self;
        let columns = columns.join(", ");
        let sql = format!(
            "SELECT {key}, {columns} FROM {name} WHERE {key} >= ?1 AND {key} <= ?2 AND {condition} ORDER BY {key} {order}"
        );
        let mut last = None;
        let mut read = || {
            let mut statement = connection.prepare_cached(&sql)?;
            let bounds = [Value::Integer(from), Value::Integer(to)];
            let mut rows = statement.query(params_from_iter(bounds.iter().chain(more)))?;
            while let Some(row) = rows.next()? {
                last = Some(row.get(0)?);
                take(row);
            }
            Ok::<_, rusqlite::Error>(())
        };
        let is_read = read().is_ok();
        (last, is_read)
    }
}

/// Reads events page by page. SQLite reads any page of the table, and the pages below it, if the page is put in the
/// place of the first one, `root`.
fn read_scattered(
    damaged: &Path,
    root: u32,
    found: &mut BTreeMap<String, BTreeMap<u64, Record>>,
) -> std::io::Result<()> {
    /// Kinds of pages of a table without row numbers.
    const INNER: u8 = 2;
    const LEAF: u8 = 10;

    let scratch = damaged.with_file_name("scattered.db");
    copy_with_log(damaged, &scratch)?;
    if let Ok(connection) = Connection::open(&scratch) {
        // Closing writes the log into the database.
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    let _ = std::fs::remove_file(side_file(&scratch, "-wal"));
    let mut bytes = std::fs::read(&scratch)?;
    // Without a write-ahead log from here on.
    bytes[18..20].fill(1);
    let mut file = std::fs::File::create(&scratch)?;
    file.write_all(&bytes)?;
    let place = u64::from(root.saturating_sub(1)) * PAGE_BYTES as u64;
    if place == 0 || place >= bytes.len() as u64 {
        return Ok(());
    }
    let mut rows = 0;
    for page in bytes.chunks_exact(PAGE_BYTES).skip(1).filter(|page| matches!(page[0], INNER | LEAF)) {
        file.seek(SeekFrom::Start(place))?;
        file.write_all(page)?;
        // A new connection has nothing in memory of the page before.
        let Ok(connection) = tolerant(&scratch) else { continue };
        // From both ends: a read stops at the first damaged cell.
        for order in ["run, seq", "run DESC, seq DESC"] {
            let sql = format!("SELECT seq, at, body, run FROM events ORDER BY {order}");
            let Ok(mut statement) = connection.prepare(&sql) else { continue };
            let Ok(mut events) = statement.query([]) else { continue };
            while let Ok(Some(row)) = events.next() {
                rows += 1;
                if rows > MAX_SCATTERED {
                    return Ok(());
                }
                let Some(run) = text(row, "run") else { continue };
                let seq = row.get("seq").map_or(0, i64::unsigned_abs);
                if !found.get(&run).is_some_and(|known| known.contains_key(&seq))
                    && let Some(record) = record(row)
                {
                    found.entry(run).or_default().insert(record.seq, record);
                }
            }
        }
    }
    Ok(())
}

/// Returns the ids of runs that have events, from both ends up to damage. Seeks from one run to the next.
pub(super) fn runs_with_events(connection: &Connection) -> HashSet<String> {
    let mut found = HashSet::new();
    for (edge, side) in [("min", ">"), ("max", "<")] {
        let mut last: Option<String> = None;
        loop {
            let next: rusqlite::Result<Option<String>> = match &last {
                None => {
                    let sql = format!("SELECT {edge}(run) AS run FROM events");
                    connection.query_row(&sql, [], |row| row.get("run"))
                }
                Some(last) => {
                    let sql = format!("SELECT {edge}(run) AS run FROM events WHERE run {side} ?1");
                    connection.query_row(&sql, [last], |row| row.get("run"))
                }
            };
            match next {
                Ok(Some(run)) if found.insert(run.clone()) => last = Some(run),
                _ => break,
            }
        }
    }
    found
}

/// Removes the copies of the journal that a salvage left when it was killed.
fn remove_leftovers(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(WORK) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn record(row: &Row<'_>) -> Option<Record> {
    let number = |column: &str| row.get::<_, i64>(column).ok().and_then(|number| u64::try_from(number).ok());
    let event: Event = serde_json::from_str(&text(row, "body")?).ok()?;
    Some(Record { seq: number("seq")?, at: Moment(number("at")?), event })
}

fn text(row: &Row<'_>, column: &str) -> Option<String> {
    row.get(column).ok()
}

/// Returns a value. Text that is not UTF-8 becomes empty, which [`Journal::drop_unreadable`] finds.
fn value(row: &Row<'_>, at: usize) -> Option<Value> {
    Some(match row.get_ref(at).ok()? {
        ValueRef::Text(text) => Value::Text(String::from_utf8(text.to_vec()).unwrap_or_default()),
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_owned()),
    })
}

fn plain_json(value: Value) -> serde_json::Value {
    match value {
        Value::Null | Value::Blob(_) => serde_json::Value::Null,
        Value::Integer(number) => number.into(),
        Value::Real(number) => number.into(),
        Value::Text(text) => text.into(),
    }
}

/// A column as its table declares it.
struct Column {
    name: String,
    is_number: bool,
    may_be_null: bool,
}

impl Column {
    /// Returns the value if the column accepts it, else one that [`Journal::drop_unreadable`] finds.
    fn fit(&self, value: Value) -> Value {
        match value {
            Value::Null if self.may_be_null => Value::Null,
            Value::Integer(_) if self.is_number => value,
            Value::Text(_) if !self.is_number => value,
            _ if self.is_number => Value::Integer(-1),
            _ => Value::Text(String::new()),
        }
    }
}

fn columns(connection: &Connection, table: &str) -> Vec<Column> {
    let read = || {
        let mut statement = connection.prepare(&format!("PRAGMA table_info({table})"))?;
        let column = |row: &Row<'_>| {
            let is_number = row.get::<_, String>("type")? == "INTEGER";
            Ok(Column { name: row.get("name")?, is_number, may_be_null: !row.get::<_, bool>("notnull")? })
        };
        statement.query_map([], column)?.collect::<rusqlite::Result<_>>()
    };
    read().unwrap_or_default()
}

/// Opens a damaged database as far as SQLite can.
fn tolerant(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // With this, SQLite also opens a database whose definitions are partly unreadable.
    connection.pragma_update(None, "writable_schema", true)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Restores the parts of the header that are the same in every journal, and the number of pages.
fn mend_header(path: &Path) -> std::io::Result<()> {
    let mut bytes = std::fs::read(path)?;
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES).max(PAGE_BYTES), 0);
    write_header(&mut bytes);
    std::fs::write(path, bytes)
}

fn write_header(bytes: &mut [u8]) {
    let pages = u32::try_from(bytes.len() / PAGE_BYTES).unwrap_or(u32::MAX);
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    // Page size 4096, write-ahead mode, and fixed fractions.
    bytes[16..24].copy_from_slice(&[0x10, 0, 2, 2, 0, 64, 32, 32]);
    bytes[28..32].copy_from_slice(&pages.to_be_bytes());
    // No free pages: their contents are not read.
    bytes[32..40].fill(0);
    bytes[44..48].copy_from_slice(&4_u32.to_be_bytes());
    // No automatic vacuum; text is UTF-8.
    bytes[52..56].fill(0);
    bytes[56..60].copy_from_slice(&1_u32.to_be_bytes());
    bytes[64..68].fill(0);
    let version = u32::from_be_bytes([bytes[60], bytes[61], bytes[62], bytes[63]]);
    if !(1..=MIGRATIONS.len()).contains(&(version as usize)) {
        let newest = u32::try_from(MIGRATIONS.len()).unwrap_or_default();
        bytes[60..64].copy_from_slice(&newest.to_be_bytes());
    }
    // The number of pages counts only if both of these say that it is up to date.
    bytes.copy_within(24..28, 92);
}

fn replace_first_page(path: &Path) -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let pattern = folder.path().join("pattern.db");
    let mut connection = Connection::open(&pattern).map_err(std::io::Error::other)?;
    migrate(&mut connection, &MIGRATIONS).map_err(std::io::Error::other)?;
    connection.close().map_err(|(_, error)| std::io::Error::other(error))?;
    let pattern = std::fs::read(pattern)?;
    let mut bytes = std::fs::read(path)?;
    bytes[..PAGE_BYTES].copy_from_slice(&pattern[..PAGE_BYTES]);
    write_header(&mut bytes);
    std::fs::write(path, bytes)
}

/// Copies the damaged database and its log to another name, which is returned.
fn keep_damaged(path: &Path) -> std::io::Result<PathBuf> {
    let free = kept_names(path).find(|name| name.symlink_metadata().is_err());
    let kept = free.unwrap_or_else(|| side_file(path, ".damaged"));
    // Copied and not renamed: until the new database is complete, a kill must not leave the runs without a journal.
    copy_with_log(path, &kept)?;
    Ok(kept)
}

/// Returns the names that damaged databases are kept under, in the order in which they are used.
fn kept_names(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1..).map(|number| match number {
        1 => side_file(path, ".damaged"),
        number => side_file(path, &format!(".damaged-{number}")),
    })
}

/// Returns whether the database at `path` is gone, or one that a repair has kept.
fn is_kept(path: &Path) -> std::io::Result<bool> {
    let log = |path: &Path| std::fs::read(side_file(path, "-wal")).ok();
    let (Ok(found), own) = (std::fs::read(path), log(path)) else { return Ok(true) };
    for name in kept_names(path).take_while(|name| name.symlink_metadata().is_ok()) {
        // A repair that was killed may have removed the log.
        if std::fs::read(&name)? == found && (own.is_none() || own == log(&name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Puts a complete database in the place of the one at `path`.
fn replace_by(fresh: &Path, path: &Path) -> std::io::Result<()> {
    // Flushed before it has the name by which it counts as complete.
    std::fs::OpenOptions::new().write(true).open(fresh)?.sync_all()?;
    std::fs::rename(fresh, side_file(path, REPAIRED))?;
    complete_repair(path)
}

/// Returns whether a repair was killed after its database was complete.
pub(super) fn is_half_repaired(path: &Path) -> bool {
    side_file(path, REPAIRED).symlink_metadata().is_ok()
}

/// Completes a repair, if its database is complete and the damaged one is still in its place: removes the log of the
/// damaged one, which belongs to no other, and then renames. A kill in between leaves a damaged database without its log,
/// and the name from which the next process that opens the journal can complete the repair. The caller holds the lock
/// alone.
pub(super) fn complete_repair(path: &Path) -> std::io::Result<()> {
    if !is_half_repaired(path) {
        return Ok(());
    }
    // A journal restored from a backup, for example, must not be replaced by the rest of the damaged one.
    if !is_kept(path)? {
        return std::fs::rename(side_file(path, REPAIRED), side_file(path, UNUSED));
    }
    for suffix in ["-wal", "-shm"] {
        unless_missing(std::fs::remove_file(side_file(path, suffix)))?;
    }
    std::fs::rename(side_file(path, REPAIRED), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::budget::BudgetLimits;
    use crate::run::journal::tests::{call, place, replied, started};
    use crate::run::journal::{Call, CallKind, CallRow, LockedRun};
    use crate::run::ledger::charged_tokens;

    /// Creates a journal at `path` with a run, as a killed process leaves it: with everything in its log.
    async fn killed(path: &Path, run: &RunId) {
        let (_folder, live) = place();
        let journal = Journal::open(&live).unwrap();
        LockedRun::new(run.clone(), journal.clone(), None).create("why?", &started()).await.unwrap();
        copy_with_log(&live, path).unwrap();
    }

    async fn runs(path: &Path) -> Vec<RunId> {
        Journal::open(path).unwrap().runs().await.unwrap().runs.into_iter().map(|run| run.id).collect()
    }

    #[tokio::test]
    async fn repair_that_is_killed_at_any_rename_loses_nothing() {
        let [damaged, saved] = [1, 2].map(RunId::random);
        let (folder, path) = place();
        let fresh = folder.path().join("fresh.db");
        for step in 0..4 {
            killed(&path, &damaged).await;
            killed(&fresh, &saved).await;
            // Closing writes the log into the database.
            assert_eq!(runs(&fresh).await, std::slice::from_ref(&saved));
            let kept = keep_damaged(&path).unwrap();
            if step > 0 {
                std::fs::rename(&fresh, side_file(&path, REPAIRED)).unwrap();
            }
            if step > 1 {
                std::fs::remove_file(side_file(&path, "-wal")).unwrap();
            }
            if step > 2 {
                complete_repair(&path).unwrap();
            }
            let expected = if step == 0 { &damaged } else { &saved };
            assert_eq!(runs(&path).await, std::slice::from_ref(expected), "killed at step {step}");
            assert!(!is_half_repaired(&path));
            assert_eq!(runs(&kept).await, std::slice::from_ref(&damaged), "the damaged journal is kept with its log");
        }
    }

    #[tokio::test]
    async fn repair_that_was_not_completed_does_not_replace_a_restored_journal() {
        let [damaged, saved, restored] = [1, 2, 3].map(RunId::random);
        let (folder, path) = place();
        let fresh = folder.path().join("fresh.db");
        killed(&path, &damaged).await;
        killed(&fresh, &saved).await;
        keep_damaged(&path).unwrap();
        std::fs::rename(&fresh, side_file(&path, REPAIRED)).unwrap();
        std::fs::remove_file(side_file(&path, "-wal")).unwrap();
        killed(&path, &restored).await;
        assert_eq!(runs(&path).await, [restored]);
        assert!(side_file(&path, UNUSED).exists());
    }

    /// Returns the calls of a run after a repair: a prompt and a job, both replied, that were damaged by `sql`. Also returns
    /// what the repair reports as lost.
    async fn repaired(sql: &str) -> (Vec<CallRow>, Vec<String>) {
        let ((_folder, path), run) = (place(), RunId::random(1));
        let journal = Journal::open(&path).unwrap();
        let locked = LockedRun::new(run.clone(), journal.clone(), None);
        locked.create("why?", &started()).await.unwrap();
        let job = Call { kind: CallKind::Job, worst_cost: Some(99), ..call("n3/research") };
        for call in [call("n2/step/1"), job] {
            let id = locked.begin_call(&call, Moment(8)).await.unwrap();
            if call.is_job() {
                let endpoint = JobEndpoint { address: "http://localhost".into(), key: None, is_web_only: true };
                locked.attach_job(id, &"resp_7".parse().unwrap(), ProviderKind::OpenAi, endpoint).await.unwrap();
            }
            locked.end_call(id, CallState::Sent, replied()).await.unwrap();
        }
        drop((locked, journal));
        let database = || {
            let database = Connection::open(&path).unwrap();
            database.pragma_update(None, "writable_schema", true).unwrap();
            database
        };
        // Damage knows no types.
        database().execute_batch("UPDATE sqlite_schema SET sql = replace(sql, ') STRICT', ')')").unwrap();
        database().execute_batch(sql).unwrap();
        let lost = Journal::salvage(&path, |_| true).unwrap().lost;
        (Journal::open(&path).unwrap().calls(&run).await.unwrap(), lost)
    }

    #[tokio::test]
    async fn call_with_a_damaged_word_keeps_its_charge_and_its_reply() {
        let (whole, lost) = repaired("").await;
        assert!(lost.is_empty() && whole.len() == 2, "{lost:?}");
        for (column, value, mended) in [
            ("node", "'m2'", ["n2", "n3"]),
            ("role", "'judgf'", ["worker", "researcher"]),
            ("purpose", "CAST(x'7265ff' AS TEXT)", ["research", "research"]),
            ("label", "'publia'", ["internal", "internal"]),
            ("outcome", "'repliee'", ["replied", "replied"]),
            ("usage", "'{'", ["null", "null"]),
            ("cost", "-1", ["null", "99"]),
            ("sent_at", "-1", ["0", "0"]),
        ] {
            let (calls, lost) = repaired(&format!("UPDATE calls SET {column} = {value}")).await;
            assert_eq!(lost, [1, 2].map(|id| format!("{column} of call {id}")), "{column}");
            let columns: Vec<_> = calls.iter().map(|call| serde_json::to_value(call).unwrap()).collect();
            let found: Vec<_> = columns.iter().map(|columns| columns[column].to_string()).collect();
            assert_eq!(found.iter().map(|value| value.trim_matches('"')).collect::<Vec<_>>(), mended, "{column}");
            for (call, before) in calls.iter().zip(&whole) {
                assert_eq!((call.reply(), call.is_job(), &call.job), (before.reply(), before.is_job(), &before.job));
                assert!(column == "cost" || call.charged_cost() == Some(42), "{column}");
            }
        }
    }

    #[tokio::test]
    async fn call_whose_worst_case_is_lost_is_charged_no_less_than_it_may_have_cost() {
        let limits = BudgetLimits::default();
        for (value, id) in [("-1", "1, 2"), ("'much'", "1, 2"), ("x'00'", "1, 2"), ("-1", "2")] {
            let (calls, lost) = repaired(&format!(
                "UPDATE calls SET usage = '{{', cost = {value}, worst_tokens = {value}, worst_cost = {value} WHERE id IN ({id})"
            ))
            .await;
            assert_eq!(lost.len(), id.split(',').count(), "{value}: {lost:?}");
            let [prompt, job] = &calls[..] else { panic!("a call was dropped: {lost:?}") };
            assert_eq!(job.charged_cost(), limits.cost_nanos, "{value}");
            if id != "2" {
                assert_eq!((prompt.charged_cost(), Some(charged_tokens(prompt))), (limits.cost_nanos, limits.tokens));
            }
        }
        let unlimited = "UPDATE events SET body = json_set(body, '$.settings.limits.cost_nanos', null,
            '$.settings.limits.tokens', null);";
        let damage = "UPDATE calls SET cost = -1, usage = '{', worst_cost = -1, worst_tokens = -1 WHERE id = 1";
        let (calls, _) = repaired(&format!("{unlimited} {damage}")).await;
        let charged = (calls[0].charged_cost(), charged_tokens(&calls[0]));
        assert_eq!(charged, (Some(99), 6), "the job's worst case, and the tokens of the prompt itself");
    }

    #[tokio::test]
    async fn call_whose_reply_is_lost_stays_charged_and_its_job_is_polled_again() {
        for (sql, polled) in
            [("reply = '{'", true), ("reply = '{', provider = 'openaj'", true), ("reply = '{', job = ''", false)]
        {
            let (calls, lost) = repaired(&format!("UPDATE calls SET {sql}")).await;
            assert!(lost.len() == 2 && calls.iter().all(|call| call.charged_cost() >= Some(42)), "{sql}: {lost:?}");
            let states: Vec<_> = calls.iter().map(|call| (call.state(), call.job_to_poll().is_some())).collect();
            let job = if polled { (CallState::Damaged, true) } else { (CallState::Unknown, false) };
            assert_eq!(states, [(CallState::Damaged, false), job], "{sql}");
        }
        let (calls, _) = repaired("UPDATE calls SET outcome = 'sent', reply = NULL, job = NULL").await;
        let states: Vec<_> = calls.iter().map(CallRow::state).collect();
        assert_eq!(states, [CallState::Sent, CallState::Unknown], "rows of the egress log may be lost");
    }

    #[tokio::test]
    async fn journal_that_is_open_is_not_replaced_and_one_under_repair_is_not_opened() {
        let (_folder, path) = place();
        let run = RunId::random(1);
        killed(&path, &run).await;
        let journal = Journal::open(&path).unwrap();
        let refused = Journal::salvage(&path, |_| true).unwrap_err();
        assert!(matches!(refused, JournalError::Held { .. }) && refused.hint().is_some(), "{refused}");
        assert_eq!(journal.runs().await.unwrap().runs.len(), 1);
        drop(journal);
        let opened_meanwhile = |_: &[Record]| {
            let refused = Journal::open(&path).err().unwrap();
            assert!(matches!(refused, JournalError::Held { .. }), "{refused}");
            true
        };
        assert_eq!(Journal::salvage(&path, opened_meanwhile).unwrap().runs, 1);
        assert_eq!(runs(&path).await, [run]);
    }
}
