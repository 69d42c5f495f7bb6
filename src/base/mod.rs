//! Words every other module may use; it may use none of them.

pub mod id;

pub mod clock;

pub mod lock;

pub mod line;

pub mod money;

pub mod token;

pub mod word;

pub mod retry;

pub mod http;
