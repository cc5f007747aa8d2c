//! `consign version`

use consign_store::{postgres, sqlite};
use serde::Serialize;

use super::OutputArgs;
use crate::failure::Exit;
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: OutputArgs,
}

/// What this program is, and what it speaks.
#[derive(Serialize)]
struct BuildInfo {
    version: &'static str,
    /// Release builds set these two; other builds do not have them.
    commit: Option<&'static str>,
    build_time: Option<&'static str>,
    rustc: &'static str,
    target: &'static str,
    protocols: ProtocolVersions,
    schemas: NewestSchemas,
}

#[derive(Serialize)]
struct ProtocolVersions {
    intent: &'static str,
    /// The number in `/health`, which clients of the protocol compare.
    intent_server: &'static str,
    plugin: i64,
    transactions: &'static str,
    beam: &'static str,
    mesh_envelope: u32,
}

/// The newest schema that this program knows, and to which it migrates a ledger.
#[derive(Serialize)]
struct NewestSchemas {
    sqlite: u32,
    postgres: i32,
}

impl BuildInfo {
    fn own() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("CONSIGN_COMMIT"),
            build_time: option_env!("CONSIGN_BUILD_TIME"),
            rustc: env!("CONSIGN_RUSTC"),
            target: env!("CONSIGN_TARGET"),
            protocols: ProtocolVersions {
                intent: consign_web::headers::INTENT_VERSION,
                intent_server: consign_intent::API_VERSION,
                plugin: consign_automation::plugin::manifest::PROTOCOL,
                transactions: consign_transactions::SEMANTICS,
                beam: consign_beam::http::PROTOCOL,
                mesh_envelope: consign_mesh::fingerprint::ENVELOPE_VERSION,
            },
            schemas: NewestSchemas {
                sqlite: sqlite::SCHEMA_VERSION,
                postgres: postgres::SCHEMA_VERSION,
            },
        }
    }

    fn human(&self) -> String {
        let (speaks, schemas) = (&self.protocols, &self.schemas);
        render::fields(&[
            ("consign", Some(self.version.to_owned())),
            ("commit", self.commit.map(str::to_owned)),
            ("built", self.build_time.map(str::to_owned)),
            (
                "compiler",
                Some(format!("{}, for {}", self.rustc, self.target)),
            ),
            (
                "Intent Protocol",
                Some(format!(
                    "{}, server version {}",
                    speaks.intent, speaks.intent_server
                )),
            ),
            ("plugin protocol", Some(speaks.plugin.to_string())),
            ("transactions", Some(speaks.transactions.to_owned())),
            ("Beam", Some(speaks.beam.to_owned())),
            (
                "mesh",
                Some(format!("envelope version {}", speaks.mesh_envelope)),
            ),
            (
                "schema",
                Some(format!(
                    "SQLite {}, PostgreSQL {}",
                    schemas.sqlite, schemas.postgres
                )),
            ),
        ])
    }
}

impl Args {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let info = BuildInfo::own();
        if self.output.json {
            out::json(&info)?;
        } else {
            out::data(&info.human())?;
        }
        Ok(Exit::Done)
    }
}
