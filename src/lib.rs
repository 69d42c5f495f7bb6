//! `dr` answers research questions from a folder of Markdown, with citations that code has checked.
pub mod base;

pub mod kb;

pub mod research;
