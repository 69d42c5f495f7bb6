//! The tables of the journal, and the step from each version of the format to the next.
//!
//! A database may contain parts that `dr` did not write: a trigger that changes inserted rows, or a view in place of a
//! table. They are disabled, and a database that has any is refused.

use std::collections::BTreeMap;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::egress::link_all;

/// The migration from each version of the format to the next. Their number is the version this program writes.
pub(super) const MIGRATIONS: [&str; 10] = [
    "CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        question TEXT NOT NULL,
        started_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE events (
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        at INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE calls (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        role TEXT NOT NULL,
        model TEXT NOT NULL,
        request_hash TEXT NOT NULL,
        is_tight INTEGER NOT NULL,
        counted_tokens INTEGER NOT NULL,
        worst_tokens INTEGER NOT NULL,
        worst_cost INTEGER,
        sent_at INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        ended_at INTEGER,
        reply TEXT,
        error TEXT,
        usage TEXT,
        cost INTEGER
    ) STRICT;
    CREATE INDEX calls_by_key ON calls (run, key);",
    "CREATE TABLE lookups (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        node TEXT NOT NULL,
        tool TEXT NOT NULL,
        query TEXT NOT NULL,
        scope TEXT NOT NULL,
        label TEXT NOT NULL,
        version TEXT NOT NULL,
        at INTEGER NOT NULL,
        answered_by INTEGER REFERENCES lookups (id) ON DELETE SET NULL,
        result TEXT,
        vector BLOB
    ) STRICT;
    CREATE INDEX lookups_by_query ON lookups (tool, version, query);
    CREATE INDEX lookups_by_run ON lookups (run);
    CREATE INDEX lookups_by_answer ON lookups (answered_by);",
    "ALTER TABLE calls ADD COLUMN job TEXT;
    CREATE TABLE egress (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
        node TEXT NOT NULL,
        at INTEGER NOT NULL,
        kind TEXT NOT NULL,
        target TEXT NOT NULL,
        text TEXT NOT NULL,
        withheld TEXT
    ) STRICT;
    CREATE INDEX egress_by_run ON egress (run);",
    // Until now the purpose of a call was guessed from its key, which missed the call that fills the caller's schema.
    "ALTER TABLE calls ADD COLUMN purpose TEXT NOT NULL DEFAULT 'research';
    UPDATE calls SET purpose = 'writing' WHERE key GLOB 'write*' OR key = 'output' OR key GLOB 'output/*';",
    // A request on record answers every later one like it, whatever its key.
    "ALTER TABLE calls ADD COLUMN provider TEXT;
    DROP INDEX calls_by_key;
    CREATE INDEX calls_by_request ON calls (run, request_hash);",
    // Queries that mean the same are found by their key words, and compared by an embedder when that is needed.
    "ALTER TABLE lookups DROP COLUMN vector;
    ALTER TABLE lookups ADD COLUMN words TEXT;
    CREATE INDEX lookups_by_words ON lookups (tool, version, words) WHERE words IS NOT NULL;",
    // Each row has a hash of itself and of the row before it, and the run has the hash of the last one.
    "ALTER TABLE egress ADD COLUMN hash TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN egress_head TEXT NOT NULL DEFAULT '';",
    // Until now the node of a call was read off its key, and a reply that a repair had lost had no reason. Whether a
    // call was shown public text alone was not stored.
    "ALTER TABLE calls ADD COLUMN node TEXT;
    ALTER TABLE calls ADD COLUMN label TEXT NOT NULL DEFAULT 'internal';
    UPDATE calls SET node = substr(key, 1, instr(key || '/', '/') - 1) WHERE key GLOB 'n[1-9]*'
        AND NOT substr(key, 2, instr(key || '/', '/') - 2) GLOB '*[^0-9]*';
    UPDATE calls SET outcome = 'damaged' WHERE outcome = 'lost' AND error IS NULL;",
    // A job was polled wherever the settings led, and given up if it was not known there.
    "ALTER TABLE calls ADD COLUMN endpoint TEXT;",
    // Until now these stood in the text of `version` and `query`. Rows from then have no `attempt`, and are matched by
    // their text: a process of an older version that is running may still add some. Reasons of withheld texts were
    // sentences, which the hashes of their rows cover.
    "ALTER TABLE lookups ADD COLUMN max_hits INTEGER;
    ALTER TABLE lookups ADD COLUMN day TEXT;
    ALTER TABLE lookups ADD COLUMN read_for TEXT;
    ALTER TABLE lookups ADD COLUMN is_open INTEGER;
    ALTER TABLE lookups ADD COLUMN attempt INTEGER;
    ALTER TABLE lookups ADD COLUMN is_of_run INTEGER;",
];

/// The version from which on outgoing texts are chained by their hashes.
const CHAINED: i64 = 7;

/// Disables triggers and views, and forbids changes of the database's internals by SQL.
pub(super) fn harden(connection: &Connection) -> rusqlite::Result<()> {
    let settings = [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
    ];
    settings.into_iter().try_for_each(|(setting, value)| connection.set_db_config(setting, value).map(drop))
}

/// Returns the differences between a database and the parts that `dr` writes in its version of the format: additional,
/// changed and missing parts. The version must be known.
pub(super) fn differences(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    // One transaction, because another process may be migrating.
    let transaction = connection.unchecked_transaction()?;
    let expected = Connection::open_in_memory()?;
    for migration in MIGRATIONS.iter().take(version(&transaction)?) {
        expected.execute_batch(migration)?;
    }
    let (expected, mut found) = (parts(&expected)?, parts(&transaction)?);
    let mut differences = Vec::new();
    for ((kind, name), sql) in expected {
        match found.remove(&(kind.clone(), name.clone())) {
            Some(other) if other == sql => {}
            Some(_) => differences.push(format!("{kind} `{name}` (changed)")),
            None => differences.push(format!("{kind} `{name}` (missing)")),
        }
    }
    differences.extend(found.into_keys().map(|(kind, name)| format!("{kind} `{name}`")));
    Ok(differences)
}

/// Returns the SQL of every part by its kind and name. Indexes that SQLite makes by itself have no SQL.
fn parts(connection: &Connection) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    let sql = "SELECT type, name, sql FROM sqlite_schema WHERE NOT (type = 'index' AND sql IS NULL)";
    let mut statement = connection.prepare(sql)?;
    let parts = statement.query_map([], |row| {
        let sql: Option<String> = row.get("sql")?;
        // Spacing does not count, so a migration may be laid out anew.
        let words: Vec<_> = sql.iter().flat_map(|sql| sql.split_whitespace()).collect();
        Ok(((row.get("type")?, row.get("name")?), words.join(" ")))
    })?;
    parts.collect()
}

pub(super) fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(found).unwrap_or(usize::MAX))
}

/// Applies the migrations that are missing, in one transaction with the new version.
pub(super) fn migrate(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<()> {
    if version(connection)? >= migrations.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the transaction.
    for (migration, version) in migrations.iter().zip(1_i64..).skip(version(&transaction)?) {
        transaction.execute_batch(migration)?;
        if version == CHAINED {
            link_all(&transaction)?;
        }
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()
}
