//! The tables of the journal, and the step from each version of the format to the next.

use rusqlite::Connection;

/// The migration from each version of the format to the next. Their number is the version this program writes.
pub(super) const MIGRATIONS: [&str; 6] = [
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
];

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
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()
}
