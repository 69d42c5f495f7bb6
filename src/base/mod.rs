//! Words every other module may use; it may use none of them.

pub mod id;

pub mod clock;

pub mod line;

pub mod token;

pub mod word;

pub mod http;
