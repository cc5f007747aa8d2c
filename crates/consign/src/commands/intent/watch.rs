//! `consign intent watch ID`

use std::time::Duration;

use consign_client::IntentResult;

use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::LinkArgs;
use crate::{out, render};

pub(super) const AFTER_HELP: &str = "\
Exit codes:
  0  it was fulfilled
  1  it is dead, or the time was over
  3  there is no such intent (any more)";

const POLL_MIN: Duration = Duration::from_millis(200);
const POLL_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The intent
    id: String,

    /// Stop after so many seconds
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

impl Args {
    /// Prints each change; with `--json` a document per change.
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let client = self.link.client()?;
        let started = tokio::time::Instant::now();
        let (mut shown, mut pause) = (None, POLL_MIN);
        loop {
            let intent = client.result(&self.id).await?;
            let seen = (intent.status.clone(), intent.claim_attempts);
            if shown.as_ref() != Some(&seen) {
                self.show(&intent)?;
                shown = Some(seen);
                pause = POLL_MIN;
            }
            match intent.status.as_str() {
                "fulfilled" => return Ok(Exit::Done),
                "dead" => return Ok(Exit::Failed),
                _ => {}
            }
            if let Some(within) = self.within
                && started.elapsed() >= Duration::from_secs(within)
            {
                let message = format!("it is still {} after {within} s", intent.status);
                return Err(Failure::failed(message).into());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_MAX);
        }
    }

    fn show(&self, intent: &IntentResult) -> anyhow::Result<()> {
        if self.output.json {
            return out::json(intent);
        }
        let error = intent
            .error
            .as_deref()
            .map(|error| render::summary(error, 60));
        let error = error.map_or_else(String::new, |error| format!(": {error}"));
        let (at, attempts) = (render::time(render::now()), intent.claim_attempts);
        out::data(&format!(
            "{at}  {}, attempt {attempts}{error}",
            intent.status
        ))
    }
}
