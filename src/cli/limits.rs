//! Flags that limit what a run may spend.

use clap::Args;

use crate::engine::{Flags, bounds, dollars, duration};

/// Limits of a run.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Limits of a run")]
pub(super) struct LimitArgs {
    /// Use this model for every role [env: `DR_MODEL`]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Cost limit in US dollars; `inf` for no limit (default: 10)
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    max_cost: Option<f64>,

    /// Token limit (default: 300000; less for a plan of few sub-questions)
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,

    /// Time limit, for example `90s` or `15m` (default: 30m; less for a plan of few sub-questions, more with local
    /// models or Deep Research)
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_time: Option<String>,

    /// Most rounds of research (default: 6)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(bounds("max_rounds")))]
    max_rounds: Option<u32>,

    /// Most levels of sub-questions (default: 3)
    #[arg(long, value_name = "N")]
    max_depth: Option<u32>,

    /// Most Deep Research jobs to start (default: 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(bounds("deep_research.max_jobs")))]
    #[arg(conflicts_with = "no_deep_research")]
    deep_research_max: Option<u16>,

    /// Start no Deep Research job; workers search the web if a search engine is configured
    #[arg(long)]
    no_deep_research: bool,

    /// Sub-questions to research in parallel (default: 3)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(bounds("parallel")))]
    parallel: Option<u16>,
}

impl LimitArgs {
    /// Adds these flags to those of every command.
    pub(super) fn flags(&self, flags: Flags) -> Flags {
        flags
            .set("model", self.model.clone())
            .set("max_cost", self.max_cost)
            .set("max_tokens", self.max_tokens)
            .set("max_time", self.max_time.clone())
            .set("max_rounds", self.max_rounds)
            .set("max_depth", self.max_depth)
            .set("parallel", self.parallel)
    }

    /// Returns the limit of background jobs, if a flag sets it.
    pub(super) fn max_jobs(&self) -> Option<usize> {
        if self.no_deep_research { Some(0) } else { self.deep_research_max.map(usize::from) }
    }
}

fn time(text: &str) -> Result<String, String> {
    duration(text).map(|_| text.to_owned())
}
