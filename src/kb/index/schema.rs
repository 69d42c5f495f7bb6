//! The tables of an index and their rows: the only on-disk format of `kb`.
//!
//! | table | one row per | key |
//! |---|---|---|
//! | `manifest` | entry of the [`super::Manifest`] | `key` |
//! | `documents_N` | indexed file | `document_id` |
//! | `chunks_N` | passage of a file | `chunk_id` |
//!
//! `N` is the generation, which `--rebuild` increases. Change a column only together with [`SCHEMA_VERSION`]. A
//! column may be added without that: an index of an earlier chunker lacks it, is read without it, and is rebuilt
//! before it is written. The same holds for an index of earlier terms.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float32Array, Int64Array, ListArray, ListBuilder,
    RecordBatch, StringArray, StringBuilder, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::base::id::{ChunkId, ContentHash, DocumentId};
use crate::kb::structure::Structure;

/// Version of the columns. An index with any other version is refused.
pub(crate) const SCHEMA_VERSION: u32 = 2;

/// Separates the values in a column that holds several: the names of a document, the headings above a chunk.
const PART_SEPARATOR: &str = "\n";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRow {
    pub id: DocumentId,
    pub collection: String,
    /// Path relative to the collection's root, with `/` between components.
    pub path: String,
    pub title: String,
    /// Size in bytes when the file was read.
    pub size: u64,
    /// Modification time in nanoseconds since the Unix epoch, or `None` if it was too recent to detect a later change.
    pub modified_ns: Option<i64>,
    /// Hash of the file's bytes.
    pub content_hash: ContentHash,
    pub chunks: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChunkRow {
    pub id: ChunkId,
    pub document_id: DocumentId,
    pub collection: String,
    pub path: String,
    /// Title, aliases and file name of the document, in this order.
    pub names: Vec<String>,
    /// Headings above the passage, outermost first.
    pub heading_path: Vec<String>,
    /// Opening line of a fence or header of a table that the passage continues.
    pub context: Option<String>,
    /// The passage, verbatim.
    pub text: String,
    pub tags: Vec<String>,
    /// Date of the document, `YYYY-MM-DD`.
    pub date: Option<String>,
    /// First line in the file as stored, from 1.
    pub line_start: u32,
    /// Last line, inclusive.
    pub line_end: u32,
    /// First byte in the file as stored.
    pub byte_start: u64,
    /// End of the byte range, exclusive.
    pub byte_end: u64,
    /// Tokens of the embedded text.
    pub tokens: u32,
    /// Hash of the file that the passage was cut from.
    pub content_hash: ContentHash,
    /// Hash of embedder and embedded text; `None` if the passage has no words to embed.
    pub embed_key: Option<String>,
    /// The terms of the text index. Written but not read back; empty in rows from storage.
    pub searched: String,
    /// The vector. Written but not read back; always `None` in rows from storage.
    pub vector: Option<Vec<f32>>,
}

impl ChunkRow {
    /// Returns the document's title.
    pub(crate) fn title(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// The column of the text index: [`ChunkRow::searched`].
pub(super) const SEARCHED: &str = "searched";

/// The column that tells whether a chunk is still to be embedded, so that no vectors are read to find out. Indexes before
/// version 7 of the terms lack it.
pub(super) const PENDING: &str = "pending";

/// Columns of a [`ChunkRow`] except the vector.
pub(super) const CHUNK_COLUMNS: [&str; 17] = [
    "chunk_id", "document_id", "collection", "path", "names", "heading_path", "context", "text", "tags", "date",
    "line_start", "line_end", "byte_start", "byte_end", "tokens", "content_hash", "embed_key",
];

/// The column of a document's [`Structure`], as JSON. It is read only to resolve links. Indexes before version 3 of
/// the chunker lack it.
pub(super) const STRUCTURE: &str = "structure";

pub(super) const DOCUMENT_COLUMNS: [&str; 8] =
    ["document_id", "collection", "path", "title", "size", "modified_ns", "content_hash", "chunks"];

pub(super) fn documents_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        text_field("document_id", false),
        text_field("collection", false),
        text_field("path", false),
        text_field("title", false),
        Field::new("size", DataType::UInt64, false),
        // Null if the time is too recent to be trusted: the next run compares the content.
        Field::new("modified_ns", DataType::Int64, true),
        text_field("content_hash", false),
        Field::new("chunks", DataType::UInt32, false),
        text_field(STRUCTURE, false),
    ]))
}

pub(super) fn chunks_schema(dimension: usize) -> SchemaRef {
    Arc::new(Schema::new(vec![
        text_field("chunk_id", false),
        text_field("document_id", false),
        text_field("collection", false),
        text_field("path", false),
        text_field("names", false),
        text_field("heading_path", false),
        text_field("context", true),
        text_field("text", false),
        text_field(SEARCHED, false),
        // A list, so that the filter can match a single tag.
        Field::new("tags", DataType::List(Arc::new(text_field("item", true))), false),
        // As text, since days in the form `YYYY-MM-DD` sort chronologically.
        text_field("date", true),
        Field::new("line_start", DataType::UInt32, false),
        Field::new("line_end", DataType::UInt32, false),
        Field::new("byte_start", DataType::UInt64, false),
        Field::new("byte_end", DataType::UInt64, false),
        Field::new("tokens", DataType::UInt32, false),
        text_field("content_hash", false),
        text_field("embed_key", true),
        pending_field(),
        vector_field(dimension),
    ]))
}

fn text_field(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

fn pending_field() -> Field {
    Field::new(PENDING, DataType::Boolean, false)
}

fn vector_field(dimension: usize) -> Field {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    Field::new("vector", DataType::FixedSizeList(item, dimension_i32(dimension)), true)
}

fn dimension_i32(dimension: usize) -> i32 {
    i32::try_from(dimension).unwrap_or(i32::MAX)
}

pub(super) fn manifest_batch(entries: &[(String, String)]) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new(
        Arc::new(Schema::new(vec![text_field("key", false), text_field("value", false)])),
        vec![texts(entries.iter().map(|(key, _)| key)), texts(entries.iter().map(|(_, value)| value))],
    )
}

pub(super) fn documents_batch(documents: &[(DocumentRow, Structure)]) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<&DocumentRow> = documents.iter().map(|(row, _)| row).collect();
    let structures = documents.iter().map(|(_, structure)| serde_json::to_string(structure));
    let structures: Vec<String> = structures.collect::<Result<_, _>>().map_err(|error| json_error(&error))?;
    RecordBatch::try_new(
        documents_schema(),
        vec![
            texts(rows.iter().map(|row| row.id.as_str())),
            texts(rows.iter().map(|row| &row.collection)),
            texts(rows.iter().map(|row| &row.path)),
            texts(rows.iter().map(|row| &row.title)),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.size))),
            Arc::new(rows.iter().map(|row| row.modified_ns).collect::<Int64Array>()),
            texts(rows.iter().map(|row| row.content_hash.as_str())),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.chunks))),
            texts(structures.iter()),
        ],
    )
}

pub(super) fn chunks_batch(rows: &[ChunkRow], dimension: usize) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new(
        chunks_schema(dimension),
        vec![
            texts(rows.iter().map(|row| row.id.as_str())),
            texts(rows.iter().map(|row| row.document_id.as_str())),
            texts(rows.iter().map(|row| &row.collection)),
            texts(rows.iter().map(|row| &row.path)),
            texts(rows.iter().map(|row| row.names.join(PART_SEPARATOR))),
            texts(rows.iter().map(|row| row.heading_path.join(PART_SEPARATOR))),
            optional_texts(rows.iter().map(|row| row.context.as_deref())),
            texts(rows.iter().map(|row| &row.text)),
            texts(rows.iter().map(|row| &row.searched)),
            text_lists(rows.iter().map(|row| &row.tags)),
            optional_texts(rows.iter().map(|row| row.date.as_deref())),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.line_start))),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.line_end))),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.byte_start))),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.byte_end))),
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.tokens))),
            texts(rows.iter().map(|row| row.content_hash.as_str())),
            optional_texts(rows.iter().map(|row| row.embed_key.as_deref())),
            booleans(rows.iter().map(|row| row.embed_key.is_some() && row.vector.is_none())),
            vectors(rows.iter().map(|row| row.vector.as_deref()), dimension),
        ],
    )
}

pub(super) fn vectors_batch(rows: &[(ChunkId, Vec<f32>)], dimension: usize) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_new(
        Arc::new(Schema::new(vec![text_field("chunk_id", false), pending_field(), vector_field(dimension)])),
        vec![
            texts(rows.iter().map(|(id, _)| id.as_str())),
            booleans(rows.iter().map(|_| false)),
            vectors(rows.iter().map(|(_, vector)| Some(vector.as_slice())), dimension),
        ],
    )
}

fn texts<T: AsRef<str>>(values: impl Iterator<Item = T>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn optional_texts<'a>(values: impl Iterator<Item = Option<&'a str>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

fn booleans(values: impl Iterator<Item = bool>) -> ArrayRef {
    Arc::new(values.map(Some).collect::<BooleanArray>())
}

fn text_lists<'a>(values: impl Iterator<Item = &'a Vec<String>>) -> ArrayRef {
    let mut builder = ListBuilder::new(StringBuilder::new());
    for list in values {
        for text in list {
            builder.values().append_value(text);
        }
        builder.append(true);
    }
    Arc::new(builder.finish())
}

fn vectors<'a>(values: impl Iterator<Item = Option<&'a [f32]>>, dimension: usize) -> ArrayRef {
    let values = values.map(|vector| vector.map(|vector| vector.iter().copied().map(Some)));
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(values, dimension_i32(dimension)))
}

/// A batch from storage, read by column name.
pub(super) struct Columns<'a>(pub(super) &'a RecordBatch);

impl<'a> Columns<'a> {
    fn column<T: Array + 'static>(&self, name: &str) -> Result<&'a T, ArrowError> {
        self.0
            .column_by_name(name)
            .and_then(|column| column.as_any().downcast_ref::<T>())
            .ok_or_else(|| ArrowError::SchemaError(format!("column `{name}` is missing or of another type")))
    }

    pub(super) fn text(&self, name: &str) -> Result<&'a StringArray, ArrowError> {
        self.column(name)
    }

    pub(super) fn float(&self, name: &str) -> Result<&'a Float32Array, ArrowError> {
        self.column(name)
    }

    pub(super) fn tokens(&self) -> Result<&'a UInt32Array, ArrowError> {
        self.column("tokens")
    }

    pub(super) fn row_ids(&self) -> Result<&'a UInt64Array, ArrowError> {
        self.column("_rowid")
    }

    pub(super) fn manifest(&self) -> Result<Vec<(String, String)>, ArrowError> {
        let (keys, values) = (self.text("key")?, self.text("value")?);
        Ok((0..self.0.num_rows()).map(|row| (keys.value(row).into(), values.value(row).into())).collect())
    }

    pub(super) fn documents(&self) -> Result<Vec<DocumentRow>, ArrowError> {
        let (ids, collections, paths) = (self.text("document_id")?, self.text("collection")?, self.text("path")?);
        let (titles, hashes) = (self.text("title")?, self.text("content_hash")?);
        let sizes: &UInt64Array = self.column("size")?;
        let modified: &Int64Array = self.column("modified_ns")?;
        let chunks: &UInt32Array = self.column("chunks")?;
        (0..self.0.num_rows())
            .map(|row| {
                Ok(DocumentRow {
                    id: stored_id(ids.value(row))?,
                    collection: collections.value(row).into(),
                    path: paths.value(row).into(),
                    title: titles.value(row).into(),
                    size: sizes.value(row),
                    modified_ns: modified.is_valid(row).then(|| modified.value(row)),
                    content_hash: ContentHash::from_stored(hashes.value(row)),
                    chunks: chunks.value(row),
                })
            })
            .collect()
    }

    pub(super) fn structures(&self) -> Result<Vec<(DocumentId, Structure)>, ArrowError> {
        let (ids, structures) = (self.text("document_id")?, self.text(STRUCTURE)?);
        let read = |row| {
            let structure = serde_json::from_str(structures.value(row)).map_err(|error| json_error(&error))?;
            Ok((stored_id(ids.value(row))?, structure))
        };
        (0..self.0.num_rows()).map(read).collect()
    }

    /// Returns the document of each chunk with its names.
    pub(super) fn names(&self) -> Result<Vec<(DocumentId, Vec<String>)>, ArrowError> {
        let (ids, names) = (self.text("document_id")?, self.text("names")?);
        (0..self.0.num_rows()).map(|row| Ok((stored_id(ids.value(row))?, parts(names.value(row))))).collect()
    }

    pub(super) fn chunks(&self) -> Result<Vec<ChunkRow>, ArrowError> {
        let (ids, document_ids) = (self.text("chunk_id")?, self.text("document_id")?);
        let (collections, paths) = (self.text("collection")?, self.text("path")?);
        let (names, headings) = (self.text("names")?, self.text("heading_path")?);
        let (contexts, texts, dates) = (self.text("context")?, self.text("text")?, self.text("date")?);
        let (hashes, embed_keys) = (self.text("content_hash")?, self.text("embed_key")?);
        let tags: &ListArray = self.column("tags")?;
        let (line_starts, line_ends): (&UInt32Array, &UInt32Array) =
            (self.column("line_start")?, self.column("line_end")?);
        let (byte_starts, byte_ends): (&UInt64Array, &UInt64Array) =
            (self.column("byte_start")?, self.column("byte_end")?);
        let tokens = self.tokens()?;
        (0..self.0.num_rows())
            .map(|row| {
                Ok(ChunkRow {
                    id: stored_id(ids.value(row))?,
                    document_id: stored_id(document_ids.value(row))?,
                    collection: collections.value(row).into(),
                    path: paths.value(row).into(),
                    names: parts(names.value(row)),
                    heading_path: parts(headings.value(row)),
                    context: optional(contexts, row),
                    text: texts.value(row).into(),
                    tags: list(tags, row)?,
                    date: optional(dates, row),
                    line_start: line_starts.value(row),
                    line_end: line_ends.value(row),
                    byte_start: byte_starts.value(row),
                    byte_end: byte_ends.value(row),
                    tokens: tokens.value(row),
                    content_hash: ContentHash::from_stored(hashes.value(row)),
                    embed_key: optional(embed_keys, row),
                    searched: String::new(),
                    vector: None,
                })
            })
            .collect()
    }

    pub(super) fn vector(&self, row: usize) -> Result<Option<Vec<f32>>, ArrowError> {
        let vectors: &FixedSizeListArray = self.column("vector")?;
        if vectors.is_null(row) {
            return Ok(None);
        }
        let values = vectors.value(row);
        let values = values
            .as_primitive_opt::<Float32Type>()
            .ok_or_else(|| ArrowError::SchemaError("column `vector` does not hold 32-bit floats".into()))?;
        Ok(Some(values.values().to_vec()))
    }
}

pub(super) fn stored_id<T: std::str::FromStr<Err = crate::base::id::ParseIdError>>(
    text: &str,
) -> Result<T, ArrowError> {
    // Checked like any other, because ids are put into conditions and paths verbatim.
    text.parse().map_err(|error| ArrowError::ExternalError(Box::new(error)))
}

fn json_error(error: &serde_json::Error) -> ArrowError {
    ArrowError::JsonError(error.to_string())
}

fn parts(joined: &str) -> Vec<String> {
    // An empty column splits into one empty part.
    joined.split(PART_SEPARATOR).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn optional(column: &StringArray, row: usize) -> Option<String> {
    column.is_valid(row).then(|| column.value(row).to_owned())
}

fn list(column: &ListArray, row: usize) -> Result<Vec<String>, ArrowError> {
    let values = column.value(row);
    let values = values
        .as_string_opt::<i32>()
        .ok_or_else(|| ArrowError::SchemaError("column `tags` does not hold text".into()))?;
    Ok(values.iter().flatten().map(str::to_owned).collect())
}
