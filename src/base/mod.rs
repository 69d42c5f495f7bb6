//! Ids, time, text, tokens, HTTP and locks: the bottom layer, which depends on no other module of the crate.

pub mod id;
pub(crate) mod step;
pub mod outbound;
pub(crate) mod hex;
pub mod clock;
pub(crate) mod mutex;
pub(crate) mod folder;
pub mod lock;
pub(crate) mod file;
pub(crate) mod script;
pub(crate) mod language;
pub mod line;
pub(crate) mod html;
pub(crate) mod html_table;
pub(crate) mod readable;
pub(crate) mod bounded;
pub(crate) mod money;
pub mod token;
pub mod word;
pub(crate) mod thesaurus;
pub(crate) mod everyday;
pub mod retry;
pub(crate) mod breaker;
pub(crate) mod http;
pub(crate) mod environment;
