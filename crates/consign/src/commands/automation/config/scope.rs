//! `config scope add|remove|set|validate`

use clap::Subcommand;
use consign_automation::config::edit::{self, ScopeChange};
use serde_json::json;

use super::tree::{TreeArgs, refused};
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, Subcommand)]
pub(crate) enum ScopeSubcommand {
    /// Add scopes to a token
    Add(ScopeChangeArgs),
    /// Remove scopes from a token
    Remove(ScopeChangeArgs),
    /// Replace the scopes of a token
    Set(ScopeChangeArgs),
    /// Check whether scopes are known
    Validate(ValidateArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ScopeChangeArgs {
    /// The name of the token
    name: String,

    /// Such as plugin:ro jobs:rw
    #[arg(required = true, value_delimiter = ',', value_name = "SCOPE")]
    scopes: Vec<String>,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    #[arg(required = true, value_delimiter = ',', value_name = "SCOPE")]
    scopes: Vec<String>,

    #[command(flatten)]
    tree: TreeArgs,
}

impl ScopeSubcommand {
    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::Add(args) | Self::Remove(args) | Self::Set(args) => &args.tree,
            Self::Validate(args) => &args.tree,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Add(args) => change(&args, &ScopeChange::Add(args.scopes.clone())),
            Self::Remove(args) => change(&args, &ScopeChange::Remove(args.scopes.clone())),
            Self::Set(args) => change(&args, &ScopeChange::Set(args.scopes.clone())),
            Self::Validate(args) => validate(&args),
        }
    }
}

fn change(args: &ScopeChangeArgs, wanted: &ScopeChange) -> anyhow::Result<Exit> {
    let tree = args.tree.find()?;
    let edit = edit::change_scopes(&tree.path, &tree.environment, &args.name, wanted);
    let edit = edit.map_err(|no| refused(&no))?;
    if !args.dry_run {
        tree.require_sound_seal(None)?;
    }
    tree.apply_edit(&edit, args.dry_run)?;
    if !args.dry_run {
        tree.reseal()?;
    }
    if args.tree.output.json {
        out::json(&json!({ "name": args.name, "changed": !args.dry_run }))?;
    } else if !args.dry_run {
        out::note(&format!(
            "changed {}; a running service needs a reload",
            render::safe(&args.name)
        ));
    }
    Ok(Exit::Done)
}

fn validate(args: &ValidateArgs) -> anyhow::Result<Exit> {
    match edit::unknown_scopes(&args.scopes).first() {
        None if args.tree.output.json => out::json(&json!({ "valid": true }))?,
        None => out::data("valid")?,
        Some((scope, near)) => {
            let area = near.unwrap_or("plugin");
            let message = format!("the scope `{}` allows nothing", render::safe(scope));
            let hint = format!("write `{area}:ro` or `{area}:rw`");
            return Err(Failure::failed(message).hint(hint).into());
        }
    }
    Ok(Exit::Done)
}
