//! `consign intent fail ID --token T --error S`

use consign_client::{NextAttempt, SecretKey};
use consign_kernel::error_text;
use consign_kernel::limits::ERROR_BYTES_MAX;
use serde::Serialize;

use crate::commands::OutputArgs;
use crate::duration_arg::DurationArg;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::{input, out};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The claimed intent
    id: String,

    /// Token from the claim
    #[arg(long)]
    token: SecretKey,

    /// Reason of the failure: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT")]
    error: String,

    /// No attempt can succeed: the intent is a dead letter now
    #[arg(long, conflicts_with = "retry_in")]
    no_retry: bool,

    /// Time before the next attempt, like 30s or 2h, instead of the back-off
    #[arg(long, value_name = "TIME")]
    retry_in: Option<DurationArg>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

#[derive(Serialize)]
struct FailedOutput<'a> {
    ok: bool,
    id: &'a str,
    error_truncated: bool,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let text = input::text("error", &self.error)?;
        // Cut as the server cuts it: it refuses a text that is much longer.
        let error = error_text::kept(text.trim());
        let next = match (self.no_retry, self.retry_in) {
            (true, _) => NextAttempt::Never,
            (false, Some(pause)) => NextAttempt::In(pause.get()),
            (false, None) => NextAttempt::Scheduled,
        };
        let token = self.token.reveal();
        let client = self.link.client()?;
        let reply = client.fail_with(&self.id, token, &error, next).await?;
        let error_truncated = reply.error_truncated || error != text.trim();
        if self.output.json {
            out::json(&FailedOutput {
                ok: true,
                id: &self.id,
                error_truncated,
            })?;
            return Ok(Exit::Done);
        }
        let what = match self.retry_in {
            Some(pause) => {
                format!("; the next attempt begins in {pause} at the earliest, if one is left")
            }
            None if self.no_retry => "; there is no further attempt".to_owned(),
            None => String::new(),
        };
        out::note(&format!("reported a failure of {}{what}", self.id));
        if error_truncated {
            out::note(&format!(
                "the error has more than {ERROR_BYTES_MAX} bytes: its beginning and its end are kept"
            ));
        }
        Ok(Exit::Done)
    }
}
