//! The automation service as a whole: started, looked at, mended.

mod start;

use clap::Subcommand;

use crate::failure::{self, Exit};

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run the automation service in the foreground
    Start(start::Args),
}

impl Action {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let json = self.wants_json();
        let ended = match self {
            Self::Start(args) => args.run(),
        };
        match ended {
            Err(error) if json => failure::report_json(&error),
            ended => ended,
        }
    }

    fn wants_json(&self) -> bool {
        match self {
            Self::Start(args) => args.tree.output.json,
        }
    }
}
