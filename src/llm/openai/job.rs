//! Background jobs of the Responses API: research that goes on for minutes at the provider's, and is asked after.
//!
//! ```text
//! request ─▶ create (one POST) ─▶ id ─▶ retrieve … retrieve ─▶ raw reply ─▶ report ─▶ cost
//!                                           └────▶ cancel
//! ```
//!
//! Nothing here waits, stores or pays. Whoever runs a job stores its id before asking after it, and the raw reply before
//! reading it; what is read of a reply is never more than what it says, and reading it never fails.

mod request;

mod state;

mod report;

mod cost;

mod client;

#[cfg(test)]
mod tests;

pub use client::{JobClient, JobError, ModelChoice, ModelStatus, poll_delay};
pub use cost::JobCost;
pub use report::{JobCitation, JobReport};
pub use request::{Capabilities, JobRequest, McpServer, request_body, stored_body};
pub use state::{Job, JobId, JobState, ParseJobIdError};
