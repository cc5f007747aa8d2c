//! `consign intent claim`

use consign_client::{ClaimFilter, Claimed};
use consign_kernel::limits::CLAIM_BATCH_MAX;
use serde::Serialize;

use crate::commands::OutputArgs;
use crate::failure::Exit;
use crate::link::LinkArgs;
use crate::{out, render};

/// The server holds a question open this long at most.
const WAIT_MAX_S: u64 = 30;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only intents with this goal
    #[arg(long)]
    goal: Option<String>,

    /// Namespace [server default: default]
    #[arg(long, short)]
    namespace: Option<String>,

    /// Id of this worker; intents for another worker are not offered
    #[arg(long, value_name = "ID")]
    worker_id: Option<String>,

    /// Capabilities of this worker, separated by commas
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    capabilities: Vec<String>,

    /// Seconds to wait for work, up to 30
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(0..=WAIT_MAX_S),
    )]
    wait: Option<u64>,

    /// Claim up to this many at once, up to 100
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CLAIM_BATCH_MAX)),
    )]
    max: Option<u32>,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: LinkArgs,
}

#[derive(Serialize)]
struct ClaimedList<'a> {
    intents: &'a [Claimed],
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let words = self.capabilities.iter().map(|word| word.trim());
        let claim = ClaimFilter {
            goal: self.goal.clone(),
            namespace: self.namespace.clone(),
            publisher: None,
            worker_id: self.worker_id.clone(),
            capabilities: words
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect(),
            wait_s: self.wait,
            max: self.max,
        };
        let claimed = self.link.client()?.claim(&claim).await?;
        match (claimed.as_slice(), self.output.json, self.max) {
            ([one], true, None) => out::json(one)?,
            (many, true, Some(_)) => out::json(&ClaimedList { intents: many })?,
            ([], _, _) => {}
            (some, _, _) => out::data(&human(some))?,
        }
        if claimed.is_empty() {
            out::note("nothing to claim");
            return Ok(Exit::Nothing);
        }
        Ok(Exit::Done)
    }
}

fn human(claimed: &[Claimed]) -> String {
    let blocks: Vec<String> = claimed.iter().map(block).collect();
    blocks.join("\n")
}

fn block(claimed: &Claimed) -> String {
    render::fields(&[
        ("id", Some(claimed.id.clone())),
        ("token", Some(claimed.claim_token.clone())),
        ("goal", Some(render::safe(&claimed.goal))),
        ("namespace", Some(claimed.namespace.clone())),
        ("attempt", Some(claimed.claim_attempts.to_string())),
        ("lease", Some(format!("{} s", claimed.claim_timeout))),
        ("payload", Some(render::safe(claimed.payload.get()))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_reads_as_a_block_of_fields() {
        let json = r#"{"id":"a1","goal":"send","namespace":"default","claim_token":"t0",
            "payload":{"x":1},"claim_attempts":2,"claim_timeout":60}"#;
        let claimed: Claimed = serde_json::from_str(json).unwrap();
        let block = "id         a1\n\
                     token      t0\n\
                     goal       send\n\
                     namespace  default\n\
                     attempt    2\n\
                     lease      60 s\n\
                     payload    {\"x\":1}\n";
        assert_eq!(
            human(&[claimed.clone(), claimed]),
            format!("{block}\n{block}")
        );
    }
}
