//! What the commands of Beam share: the server with its credential, the identity of an agent, and values of responses.

mod identity;

use clap::Args;
use consign_client::{Client, SecretKey};
use serde_json::Value;
use std::path::PathBuf;

use crate::link::{self, ServerArgs};
use crate::{out, render};

pub(crate) use identity::BeamIdentity;

/// A server, and a credential for what is not open to this machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct BeamLinkArgs {
    #[command(flatten)]
    server: ServerArgs,

    /// API key of an agent, key of the bus or session of an operator; prefer --token-file or the variable
    #[arg(
        long,
        value_name = "TOKEN",
        env = "CONSIGN_BEAM_TOKEN",
        hide_env_values = true
    )]
    token: Option<SecretKey>,

    /// File that holds the token; wins over --token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl BeamLinkArgs {
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let token = link::given(self.token.as_ref(), self.token_file.as_deref())?;
        self.server.client_with_token(token)
    }

    pub(crate) const fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }

    fn client_of(&self, token: SecretKey) -> anyhow::Result<Client> {
        self.server.client_with_token(Some(token))
    }
}

/// A server, and an operator who may read its intents and figures.
#[derive(Debug, Args)]
pub(crate) struct OperatorLinkArgs {
    /// Address of the operator who reads
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["token", "token_file"])]
    email: Option<String>,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl OperatorLinkArgs {
    /// With a session of the operator, if one is named.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let client = self.link.client()?;
        let Some(email) = &self.email else {
            return Ok(client);
        };
        let token = client.beam_login(email).await?;
        self.link.client_of(token)
    }
}

/// The server examines a limited number of intents; tells that there were more.
pub(crate) fn note_truncated(found: &Value) {
    if found["truncated"] == true {
        out::note("only the newest intents were examined; choose a shorter time with --hours");
    }
}

/// A member of a response for the terminal; `None` if it is absent or null.
pub(crate) fn member(value: &Value, name: &str) -> Option<String> {
    match &value[name] {
        Value::Null => None,
        Value::String(text) => Some(render::safe(text)),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(render::safe(&other.to_string()))
        }
    }
}

/// The same for a cell of a table, which is empty then.
pub(crate) fn cell(value: &Value, name: &str) -> String {
    member(value, name).unwrap_or_default()
}

/// A time in Unix seconds.
pub(crate) fn time_cell(value: &Value, name: &str) -> String {
    value[name].as_f64().map(render::time).unwrap_or_default()
}

/// The rows of a list in a response.
pub(crate) fn rows<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_of_a_response_cannot_steer_the_terminal() {
        let value = json!({"a": "x\u{1b}[1m", "b": 2, "c": null, "t": 1_700_000_000.75});
        assert_eq!(member(&value, "a").as_deref(), Some("x\\u{1b}[1m"));
        assert_eq!(member(&value, "b").as_deref(), Some("2"));
        assert_eq!(member(&value, "c"), None);
        assert_eq!(cell(&value, "absent"), "");
        assert_eq!(time_cell(&value, "t"), "2023-11-14T22:13:20Z");
        assert!(rows(&value, "a").is_empty());
    }
}
