//! A report as text for somebody.

pub mod markdown;

pub mod json;
