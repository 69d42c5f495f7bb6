//! A run in motion: what may be spent, and what is worked on when.

pub mod budget;

pub mod scheduler;
