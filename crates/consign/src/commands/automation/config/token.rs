//! `config token create|list|inspect|rehash|delete`

use std::io::Read as _;

use anyhow::Context as _;
use clap::Subcommand;
use consign_automation::config::edit::{self, NewToken, ScopeChange, TokenInfo};
use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde_json::json;
use zeroize::Zeroizing;

use super::tree::{TreeArgs, refused};
use crate::failure::{Exit, Failure};
use crate::{out, render};

const KEY_BYTES: usize = 32;

#[derive(Debug, Subcommand)]
pub(crate) enum TokenSubcommand {
    /// Create a token; its value is shown only once
    Create(CreateArgs),
    /// List tokens, without their values
    List(TokenListArgs),
    /// Show one token, without its value
    Inspect(NamedArgs),
    /// Accept the current scope file of a token
    Rehash(TokenChangeArgs),
    /// Delete a token and its scope file
    Delete(TokenChangeArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[arg(long)]
    name: String,

    /// The scopes, such as plugin:ro,jobs:ro
    #[arg(
        long,
        value_delimiter = ',',
        required_unless_present_any = ["scopes_file", "secret"]
    )]
    scopes: Vec<String>,

    /// A file with the scopes as JSON, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "scopes")]
    scopes_file: Option<String>,

    /// Create a secret without scopes: it signs webhooks and opens no API, so it can be handed to another party
    #[arg(long, conflicts_with_all = ["scopes", "scopes_file"])]
    secret: bool,

    #[arg(long)]
    description: Option<String>,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenListArgs {
    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct NamedArgs {
    name: String,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenChangeArgs {
    name: String,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    tree: TreeArgs,
}

impl TokenSubcommand {
    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::Create(args) => &args.tree,
            Self::List(args) => &args.tree,
            Self::Inspect(args) => &args.tree,
            Self::Rehash(args) | Self::Delete(args) => &args.tree,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::Create(args) => create(&args),
            Self::List(args) => list(&args.tree),
            Self::Inspect(args) => inspect(&args),
            Self::Rehash(args) => change(&args, "rehashed", |path, environment, name| {
                edit::change_scopes(path, environment, name, &ScopeChange::Keep)
            }),
            Self::Delete(args) => change(&args, "deleted", edit::delete),
        }
    }
}

fn create(args: &CreateArgs) -> anyhow::Result<Exit> {
    let mut tree = args.tree.find()?;
    let scopes = match &args.scopes_file {
        Some(file) => scopes_in(file)?,
        None => args.scopes.clone(),
    };
    let token = NewToken {
        name: &args.name,
        scopes,
        description: args.description.as_deref(),
        now: Timestamp::now(),
    };
    let planned = if args.secret {
        let (name, description) = (token.name, token.description);
        edit::create_secret(&tree.path, &tree.environment, name, description, token.now)
    } else {
        edit::create(&tree.path, &tree.environment, &token)
    };
    let (edit, variable) = planned.map_err(|no| refused(&no))?;
    let mut random = Zeroizing::new([0_u8; KEY_BYTES]);
    getrandom::fill(random.as_mut()).context("no source of random numbers")?;
    let key = Zeroizing::new(HEXLOWER.encode(random.as_ref()));
    if !args.dry_run {
        tree.require_sound_seal(None)?;
    }
    // The tree is checked as if the variable was set.
    let variables = &mut tree.environment.variables;
    variables.insert(variable.clone(), key.to_string());
    tree.apply_edit(&edit, args.dry_run)?;
    if args.dry_run {
        if args.tree.output.json {
            out::json(&json!({ "name": args.name, "variable": variable, "created": false }))?;
        }
        return Ok(Exit::Done);
    }
    tree.reseal()?;
    if args.tree.output.json {
        out::json(&json!({
            "name": args.name, "key": *key, "variable": variable, "created": true,
        }))?;
    } else {
        out::data(&key)?;
        out::note(&format!(
            "this key is shown only once; set {variable} to it in the environment of the service"
        ));
    }
    Ok(Exit::Done)
}

fn scopes_in(file: &str) -> anyhow::Result<Vec<String>> {
    let mut text = String::new();
    if file == "-" {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    }
    let document: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let listed = document.get("scopes").unwrap_or(&document);
    let scopes = serde_json::from_value(listed.clone());
    scopes.map_err(|_| {
        let hint = r#"write {"scopes": ["plugin:ro"]}"#;
        Failure::failed(format!("{file} contains no scopes"))
            .hint(hint)
            .into()
    })
}

fn list(args: &TreeArgs) -> anyhow::Result<Exit> {
    let tokens = edit::list(&args.find()?.peek()?);
    if args.output.json {
        out::json(&tokens)?;
    } else if tokens.is_empty() {
        out::note("no tokens");
    } else {
        let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
        out::data(&render::table(
            &["NAME", "VARIABLE", "SET", "SCOPES"],
            &rows,
        ))?;
    }
    Ok(Exit::Done)
}

fn row(token: &TokenInfo) -> Vec<String> {
    let variable = token.variable.as_deref().unwrap_or("-");
    let set = if token.is_set { "yes" } else { "no" };
    let scopes = token.scopes.join(",");
    [&token.name, variable, set, &scopes]
        .map(render::safe)
        .to_vec()
}

fn inspect(args: &NamedArgs) -> anyhow::Result<Exit> {
    let tokens = edit::list(&args.tree.find()?.peek()?);
    let Some(token) = tokens.into_iter().find(|token| token.name == args.name) else {
        let message = format!("no token has the name `{}`", args.name);
        return Err(Failure::failed(message)
            .hint("see `config token list`")
            .into());
    };
    if args.tree.output.json {
        out::json(&token)?;
        return Ok(Exit::Done);
    }
    let safe = |text: &String| render::safe(text);
    let file = token
        .scopes_file
        .as_ref()
        .map(|file| render::safe(&file.display().to_string()));
    out::data(&render::fields(&[
        ("name", Some(safe(&token.name))),
        ("variable", token.variable.as_ref().map(safe)),
        (
            "set",
            Some(if token.is_set { "yes" } else { "no" }.to_owned()),
        ),
        ("scopes", Some(safe(&token.scopes.join(", ")))),
        ("scopes file", file),
        ("created", token.created_at.as_ref().map(safe)),
        ("description", token.description.as_ref().map(safe)),
    ]))?;
    Ok(Exit::Done)
}

type Planned = Result<edit::Edit, edit::EditRefused>;

fn change(
    args: &TokenChangeArgs,
    done: &str,
    plan: impl Fn(&std::path::Path, &consign_automation::config::Environment, &str) -> Planned,
) -> anyhow::Result<Exit> {
    let tree = args.tree.find()?;
    let edit = plan(&tree.path, &tree.environment, &args.name);
    let edit = edit.map_err(|no| refused(&no))?;
    if !args.dry_run {
        // `rehash` exists to accept a changed scope file.
        let tokens = edit::list(&tree.peek()?);
        let token = tokens.into_iter().find(|token| token.name == args.name);
        let scopes_file = token.and_then(|token| token.scopes_file);
        tree.require_sound_seal(scopes_file.as_deref())?;
    }
    tree.apply_edit(&edit, args.dry_run)?;
    if !args.dry_run {
        tree.reseal()?;
    }
    if args.tree.output.json {
        out::json(&json!({ "name": args.name, done: !args.dry_run }))?;
    } else if !args.dry_run {
        out::note(&format!("{done} {}", render::safe(&args.name)));
    }
    Ok(Exit::Done)
}
