//! `consign receipt verify FILE`
//!
//! Invariant: the trusted keys come from the user's sources, never from the receipt.

use consign_client::ReceiptStanding;
use consign_kernel::receipt::{self, PublicKey, Signer, Statement, Verified};
use serde::Serialize;

use super::site::{self, PinArgs};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::secrets::{self, SecretName};
use crate::{input, out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The receipt, or - for standard input
    file: String,

    /// For receipts of intents: trust the keys in this JWK set; without it, those of --server or of the data directory
    #[arg(long, value_name = "FILE")]
    jwks: Option<String>,

    /// For receipts of intents: also ask the server whether an operator has settled the intent again since; with --server,
    /// that server is always asked
    #[arg(long)]
    online: bool,

    #[command(flatten)]
    pin: PinArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
#[serde(untagged)]
enum VerifyReport<'a> {
    Valid {
        valid: bool,
        key_id: &'a str,
        /// Present if a server was asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        standing: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        superseded_by: Option<&'a str>,
        statement: &'a Statement,
    },
    Invalid {
        valid: bool,
        error: String,
    },
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let document = input::file("the receipt", &self.file)?;
        if let Some(receipt) = site::parse_receipt(&document) {
            if self.online {
                let message =
                    "--online is for receipts of intents; this is one of an agent transaction";
                return Err(Failure::usage(message).into());
            }
            return self.pin.verify(&receipt, self.output);
        }
        let keys = self.trusted().await?;
        let verified = match receipt::verify(&document, &keys) {
            Ok(verified) => verified,
            Err(error) => {
                let error = error.to_string();
                if self.output.json {
                    out::json(&VerifyReport::Invalid {
                        valid: false,
                        error: error.clone(),
                    })?;
                }
                return Err(Failure::failed(error).into());
            }
        };
        let online = self.standing(&document).await?;
        let standing = online.as_ref().and_then(|reply| reply.standing.as_deref());
        let superseded_by = online
            .as_ref()
            .and_then(|reply| reply.superseded_by.as_deref());
        if self.output.json {
            out::json(&VerifyReport::Valid {
                valid: true,
                key_id: &verified.key_id,
                standing,
                superseded_by,
                statement: &verified.statement,
            })?;
        } else {
            out::data(&human(&verified, standing, superseded_by))?;
        }
        Ok(Exit::Done)
    }

    /// The server's standing of a genuine receipt, if a server is asked.
    async fn standing(&self, document: &str) -> anyhow::Result<Option<ReceiptStanding>> {
        if !self.online && self.server.server.is_none() {
            return Ok(None);
        }
        let reply = match self.server.client()?.verify_receipt(document).await {
            Ok(reply) => reply,
            // An older server requires a key on every path that it does not know.
            Err(error)
                if matches!(
                    error.status().map(|status| status.as_u16()),
                    Some(401 | 404 | 405)
                ) =>
            {
                out::note(
                    "this server does not report whether the receipt was superseded; it is an older version",
                );
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if reply.valid {
            return Ok(Some(reply));
        }
        let why = reply.error.as_deref().unwrap_or("it gives no reason");
        let message = format!(
            "the server does not recognise the receipt as its own: {}",
            render::safe(why)
        );
        let hint = "it may be the receipt of another server, or the server has other keys now";
        Err(Failure::failed(message).hint(hint).into())
    }

    async fn trusted(&self) -> anyhow::Result<Vec<PublicKey>> {
        if let Some(path) = &self.jwks {
            return Ok(PublicKey::from_jwks(&input::file("the keys", path)?)?);
        }
        if self.server.server.is_some() {
            return Ok(PublicKey::from_jwks(&self.server.client()?.jwks().await?)?);
        }
        let data = self.server.data.directory();
        match secrets::read_bytes(&data, SecretName::ReceiptSeed)? {
            Some(seed) => Ok(vec![Signer::from_seed(seed.reveal()).public().clone()]),
            None => Err(Failure::usage(format!(
                "no keys to verify with: {} contains none",
                data.keys().display()
            ))
            .hint("name a JWK set with --jwks, or the server with --server")
            .into()),
        }
    }
}

fn human(verified: &Verified, standing: Option<&str>, superseded_by: Option<&str>) -> String {
    let statement = &verified.statement;
    let meanwhile = match standing {
        Some("superseded") => "genuine, but superseded by a later settlement; ",
        Some("reopened") => "genuine, but the intent was opened again; ",
        _ => "genuine, ",
    };
    let mut text = format!("{meanwhile}signed by the key {}\n", verified.key_id);
    text.push_str(&render::fields(&[
        ("receipt", Some(render::safe(&statement.id))),
        ("intent", Some(render::safe(&statement.intent))),
        ("face", Some(render::safe(&statement.face))),
        ("namespace", Some(render::safe(&statement.namespace))),
        ("goal", Some(render::safe(&statement.goal))),
        ("state", Some(render::safe(&statement.state))),
        ("cause", statement.cause.as_deref().map(render::safe)),
        ("attempts", Some(statement.attempts.to_string())),
        ("created at", Some(render::time_us(statement.created_at))),
        ("settled at", Some(render::time_us(statement.settled_at))),
        (
            "payload hash",
            Some(render::safe(&statement.payload_sha256)),
        ),
        (
            "result hash",
            statement.result_sha256.as_deref().map(render::safe),
        ),
        ("standing", standing.map(render::safe)),
        (
            "superseded",
            superseded_by.map(|by| format!("by {}", render::safe(by))),
        ),
        (
            "supersedes",
            statement.supersedes.as_deref().map(render::safe),
        ),
        ("worker", statement.worker.as_deref().map(render::safe)),
        ("issuer", Some(render::safe(&statement.issuer))),
    ]));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_genuine_receipt_reads_as_fields() {
        let verified = Verified {
            key_id: "0011223344556677".to_owned(),
            statement: Statement {
                id: "rcp_1".to_owned(),
                intent: "a1".to_owned(),
                face: "intent".to_owned(),
                namespace: "default".to_owned(),
                goal: "send".to_owned(),
                state: "fulfilled".to_owned(),
                cause: None,
                attempts: 1,
                payload_sha256: "ab".to_owned(),
                result_sha256: None,
                created_at: 1_700_000_000_000_000,
                settled_at: 1_700_000_001_500_000,
                worker: Some("k1".to_owned()),
                fact: 9,
                supersedes: None,
                issuer: "here".to_owned(),
            },
        };
        assert_eq!(
            human(&verified, None, None),
            "genuine, signed by the key 0011223344556677\n\
             receipt       rcp_1\n\
             intent        a1\n\
             face          intent\n\
             namespace     default\n\
             goal          send\n\
             state         fulfilled\n\
             attempts      1\n\
             created at    2023-11-14T22:13:20Z\n\
             settled at    2023-11-14T22:13:21.5Z\n\
             payload hash  ab\n\
             worker        k1\n\
             issuer        here\n"
        );
    }
}
