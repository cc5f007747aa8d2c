//! `api ENDPOINT`: sends any request to the service.

use http::Method;

use super::request::block_on;
use super::service_args::ServiceArgs;
use crate::failure::{Exit, Failure};
use crate::system::WhenStopped;
use crate::{input, out};

const AFTER_HELP: &str = "\
Prints the response unchanged; an error response exits with 1. If no service runs, read
requests are answered from the ledger. The routes of intents, keys and operators are not
among them: `consign openapi` lists those, and curl sends to them.

Examples:
  consign api /healthz
  consign api /plugin/mail/send -b '{\"payload\": {\"to\": \"ada@example.org\"}}'
  consign api /jobs?limit=5 --api-url http://127.0.0.1:8080";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ApiArgs {
    /// The path and its query
    #[arg(value_name = "ENDPOINT")]
    endpoint: String,

    /// GET, or POST if there is a body
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,

    /// The body, @FILE or - for standard input
    #[arg(short = 'b', long, value_name = "BODY")]
    body: Option<String>,

    #[command(flatten)]
    pub(crate) service: ServiceArgs,
}

impl ApiArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let usual = if self.body.is_some() { "POST" } else { "GET" };
        let method = self.method.as_deref().unwrap_or(usual).to_ascii_uppercase();
        let method: Method = method.parse().map_err(|_| {
            Failure::failed(format!("{method} is not a valid method")).hint("write GET or POST")
        })?;
        let body = self
            .body
            .as_deref()
            .map(|body| input::text("the body", body));
        let body = body.transpose()?.unwrap_or_default();
        let path = format!("/{}", self.endpoint.trim_start_matches('/'));
        let bytes = block_on(async {
            let client = self.service.client(WhenStopped::ReadLedger).await?;
            // A job that is only queued here would wait for a service that does not run.
            if client.is_local() && method != Method::GET {
                client.close().await?;
                let message = "no service runs with this configuration";
                let hint = "start it with `system start`";
                return Err(Failure::failed(message).hint(hint).into());
            }
            let answer = client.raw(method, &path, body).await;
            client.close().await?;
            answer
        })?;
        out::data(&String::from_utf8_lossy(&bytes))?;
        Ok(Exit::Done)
    }
}
