//! `config show [ENTITY]` and `config get PATH`

use consign_automation::config::{self, Config, MASK};
use serde_json::Value;

use super::tree::TreeArgs;
use crate::failure::{Exit, Failure};
use crate::{out, render};

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigShowArgs {
    /// plugin:NAME, pipeline:NAME, webhook:NAME, plugin:*, or a path; the default is everything
    #[arg(value_name = "ENTITY")]
    wanted: Option<String>,

    /// Include all defaults
    #[arg(long)]
    effective: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// A path such as `service.log_level` or `routes.0.to`, or an entity as in `config show`
    #[arg(value_name = "PATH")]
    wanted: String,

    /// Include all defaults
    #[arg(long)]
    effective: bool,

    #[command(flatten)]
    pub(crate) tree: TreeArgs,
}

impl ConfigShowArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        show(&self.tree, self.wanted.as_deref(), self.effective)
    }
}

impl GetArgs {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        show(&self.tree, Some(&self.wanted), self.effective)
    }
}

pub(super) fn show(tree: &TreeArgs, wanted: Option<&str>, effective: bool) -> anyhow::Result<Exit> {
    let config = tree.find()?.peek()?;
    let whole = if effective {
        config.effective(MASK)
    } else {
        config.shown(MASK)
    };
    let value = match wanted {
        None => whole,
        Some(wanted) => config::pick(&whole, wanted).ok_or_else(|| {
            Failure::failed(format!("`{wanted}` is not in the configuration"))
                .hint("keys that are left out have their defaults; add --effective to see them")
        })?,
    };
    if tree.output.json {
        out::json(&value)?;
    } else if let Value::String(text) = &value {
        out::data(&render::safe(text))?;
    } else {
        out::data(&Config::as_yaml(&value))?;
    }
    Ok(Exit::Done)
}
