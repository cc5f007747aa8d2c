//! `consign key revoke KEY`

use consign_client::{SecretKey, StatusCode};
use consign_engine::key_id;
use serde::Serialize;

use crate::commands::OutputArgs;
use crate::confirm::confirm;
use crate::failure::{Exit, Failure};
use crate::link::AdminArgs;
use crate::{input, out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The key: @FILE, - for standard input, the key itself (other users can see arguments), or its id in consign key list
    #[arg(value_name = "KEY")]
    revoked: SecretKey,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Check that the server has the key, show it, and stop
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Serialize)]
struct RevokeReport<'a> {
    revoked: bool,
    key: &'a str,
}

impl Args {
    fn unknown(&self, shown: &str) -> anyhow::Result<Exit> {
        if self.output.json {
            out::json(&RevokeReport {
                revoked: false,
                key: shown,
            })?;
        }
        let message = format!("the server has no key {shown}; nothing was revoked");
        let hint =
            "list its keys with: consign key list; the main key cannot be revoked, only replaced";
        Err(Failure::new(Exit::Nothing, message).hint(hint).into())
    }

    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let key = SecretKey::new(&input::text("the key", self.revoked.reveal())?);
        if key.is_empty() {
            return Err(Failure::usage("the key to revoke is empty").into());
        }
        let shown = masked(key.reveal());
        if self.dry_run {
            let id = key_id(key.reveal());
            let known = self.admin.client()?.keys().await?;
            if !known
                .iter()
                .any(|known| known.id == id || known.id == key.reveal())
            {
                return self.unknown(&shown);
            }
        } else {
            confirm(&format!("revoke the key {shown}?"), self.yes)?;
            match self.admin.client()?.revoke_key(&key).await {
                Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => {
                    return self.unknown(&shown);
                }
                revoked => revoked?,
            }
        }
        if self.output.json {
            out::json(&RevokeReport {
                revoked: !self.dry_run,
                key: &shown,
            })?;
        } else if self.dry_run {
            out::note(&format!(
                "would revoke the key {shown}; nothing was changed"
            ));
        } else {
            out::note(&format!("the key {shown} is revoked"));
        }
        Ok(Exit::Done)
    }
}

/// An id is no secret.
fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix("k_").unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Enough of a key to recognise it, too little to use it.
fn masked(key: &str) -> String {
    if is_id(key) {
        return key.to_owned();
    }
    let characters: Vec<char> = key.chars().collect();
    if characters.len() < 20 {
        return "***".to_owned();
    }
    let start: String = characters[..3].iter().collect();
    let end: String = characters[characters.len() - 4..].iter().collect();
    render::safe(&format!("{start}...{end}"))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn a_key_is_shown_by_its_ends_and_a_short_one_not_at_all() {
        assert_eq!(
            masked("tk_0123456789abcdef0123456789abcdef01234567"),
            "tk_...4567"
        );
        assert_eq!(masked("tk_short"), "***");
        assert_eq!(masked("k_0a6ddb62b508491b"), "k_0a6ddb62b508491b");
    }
}
