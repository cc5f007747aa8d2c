//! `consign receipt verify FILE`
//!
//! Invariant: the trusted keys come from where the user pointed, never from the receipt.

use consign_kernel::receipt::{self, PublicKey, Signer, Statement, Verified};
use serde::Serialize;

use super::site::{self, PinArgs};
use crate::commands::OutputArgs;
use crate::failure::{Exit, Failure};
use crate::link::ServerArgs;
use crate::secrets::{self, Name};
use crate::{input, out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The receipt, or - for standard input
    file: String,

    /// For receipts of intents: trust the keys in this JWK set; without it those of --server, or of
    /// the data directory
    #[arg(long, value_name = "FILE")]
    jwks: Option<String>,

    #[command(flatten)]
    pin: PinArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Valid {
        valid: bool,
        key_id: &'a str,
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
        if let Some(receipt) = site::recognise(&document) {
            return self.pin.verify(&receipt, self.output);
        }
        let keys = self.trusted().await?;
        let verified = match receipt::verify(&document, &keys) {
            Ok(verified) => verified,
            Err(error) => {
                let error = error.to_string();
                if self.output.json {
                    out::json(&Outcome::Invalid {
                        valid: false,
                        error: error.clone(),
                    })?;
                }
                return Err(Failure::failed(error).into());
            }
        };
        if self.output.json {
            out::json(&Outcome::Valid {
                valid: true,
                key_id: &verified.key_id,
                statement: &verified.statement,
            })?;
        } else {
            out::data(&human(&verified))?;
        }
        Ok(Exit::Done)
    }

    async fn trusted(&self) -> anyhow::Result<Vec<PublicKey>> {
        if let Some(path) = &self.jwks {
            return Ok(PublicKey::from_jwks(&input::file("the keys", path)?)?);
        }
        if self.server.server.is_some() {
            return Ok(PublicKey::from_jwks(&self.server.client()?.jwks().await?)?);
        }
        let data = self.server.data.directory();
        match secrets::read_bytes(&data, Name::ReceiptSeed)? {
            Some(seed) => Ok(vec![Signer::from_seed(seed.reveal()).public().clone()]),
            None => Err(Failure::usage(format!(
                "no keys to check with: {} holds none",
                data.keys().display()
            ))
            .hint("name a JWK set with --jwks, or the server with --server")
            .into()),
        }
    }
}

fn human(verified: &Verified) -> String {
    let statement = &verified.statement;
    let mut text = format!("genuine, signed by the key {}\n", verified.key_id);
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
                issuer: "here".to_owned(),
            },
        };
        assert_eq!(
            human(&verified),
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
