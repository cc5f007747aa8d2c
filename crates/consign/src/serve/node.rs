//! This process as a node of its ledger: its name, and whether it shares the secrets of the other nodes.

use std::time::Duration;

use anyhow::Context;
use consign_engine::{Engine, MismatchedSecret, NodeIdentity, NodeState, Operator};

use super::ServeArgs;
use crate::data_dir::DataDir;
use crate::failure::Failure;
use crate::host_name;
use crate::secrets::SHARED;

/// The interval at which a server compares its secrets.
const COMPARE_INTERVAL: Duration = Duration::from_secs(2);
/// Fits into a table column.
const NAME_CHARS_MAX: usize = 64;

/// A name chosen by an operator.
pub(super) fn name(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if length == 0 || length > NAME_CHARS_MAX || text.chars().any(char::is_control) {
        let rule = format!("1 to {NAME_CHARS_MAX} characters, none of them a control character");
        return Err(rule);
    }
    if text.contains('/') {
        let why = "without a slash, which separates a node from its start in lease holders";
        return Err(why.to_owned());
    }
    Ok(text.to_owned())
}

pub(super) fn identity(args: &ServeArgs, id: i64, base_url: &str, shared: bool) -> NodeIdentity {
    NodeIdentity {
        id,
        name: args.node_name.clone().unwrap_or_else(default_name),
        address: base_url.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        alone: !shared,
    }
}

/// The process id distinguishes several servers on one machine.
fn default_name() -> String {
    let host = host_name::read().and_then(|text| name(&text).ok());
    let host = host.unwrap_or_else(|| "node".to_owned());
    format!("{host}:{}", std::process::id())
}

/// Refuses a server whose secrets differ from those of the other servers of a shared database.
pub(super) async fn require_shared_secrets(
    engine: &Engine,
    args: &ServeArgs,
    data: &DataDir,
) -> anyhow::Result<()> {
    if args.new_secrets {
        refuse_beside_others(engine).await?;
    }
    let differing = engine
        .compare_secrets(args.new_secrets)
        .await
        .context("cannot compare the secrets with those of the other servers")?;
    if differing.is_empty() {
        return Ok(());
    }
    Err(secret_mismatch(&differing, data).into())
}

/// Returns when the secrets of the database have been replaced while this server was stopped or disconnected. It
/// would accept the old keys, and encrypt data that the other servers cannot decrypt.
pub(super) async fn until_secrets_replaced(engine: Engine, data: DataDir) -> Failure {
    loop {
        tokio::time::sleep(COMPARE_INTERVAL).await;
        // An unavailable database says nothing about secrets.
        let differing = engine.compare_secrets(false).await.unwrap_or_default();
        if !differing.is_empty() {
            return secret_mismatch(&differing, &data);
        }
    }
}

fn secret_mismatch(differing: &[MismatchedSecret], data: &DataDir) -> Failure {
    let names: Vec<&str> = differing
        .iter()
        .copied()
        .map(MismatchedSecret::file)
        .collect();
    let keys = data.keys();
    Failure::failed(format!(
        "the servers of this database use a different {} than {}",
        names.join(" and "),
        keys.display()
    ))
    .hint(format!(
        "copy {SHARED} from the keys folder of another server to {}, with mode 600, or set \
         BUS_SECRET and CONSIGN_SEAL_KEY to the same values; or, if they were changed on purpose, stop all servers and \
         start the first one with --new-secrets",
        keys.display()
    ))
}

async fn refuse_beside_others(engine: &Engine) -> anyhow::Result<()> {
    let nodes = engine.nodes(Operator::vouched()).await?;
    let running = nodes.iter().find(|node| node.state != NodeState::Silent);
    let Some(other) = running else {
        return Ok(());
    };
    Err(Failure::failed(format!(
        "{} is running on this database with the old secrets",
        other.name
    ))
    .hint("stop all servers first; a killed server counts as running for another six seconds")
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_plain_and_there_is_always_one() {
        assert_eq!(name("web 1").as_deref(), Ok("web 1"));
        for bad in ["", "a\nb", "a/b", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad:?}");
        }
        let refused = name("a/b").unwrap_err();
        assert!(refused.contains("slash"), "{refused}");
        let own = default_name();
        assert!(own.ends_with(&format!(":{}", std::process::id())), "{own}");
        assert!(own.len() > 2 && !own.starts_with(':'), "{own}");
    }
}
