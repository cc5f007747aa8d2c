//! `config plugin list|show|set`, `config route list|add|remove` and `config webhook list|add`

use clap::Subcommand;
use consign_automation::config::edit::{self, EventRoute, Webhook, WebhookTarget};
use consign_automation::config::{self, MASK};
use serde_json::{Value, json};

use super::set::MeantArgs;
use super::show::show;
use super::tree::TreeArgs;
use crate::commands::automation::request::{print, rows};
use crate::failure::Exit;
use crate::out;

#[derive(Debug, Subcommand)]
pub(crate) enum PluginAction {
    /// List the configured plugins
    List(PartListArgs),
    /// Show one with all defaults
    Show(PartShowArgs),
    /// Change one value of a plugin in place
    Set(SetArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouteAction {
    /// List the routes
    List(PartListArgs),
    /// Route events of one type from one plugin to another
    Add(RouteArgs),
    /// Remove a route
    Remove(RouteArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebhookAction {
    /// List the endpoints, without secrets
    List(PartListArgs),
    /// Add an endpoint
    Add(WebhookArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PartListArgs {
    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PartShowArgs {
    /// The name of the plugin
    name: String,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// The name of the plugin
    name: String,

    /// Such as `enabled=false` or `retry.max_attempts=2`
    #[arg(value_name = "KEY=VALUE")]
    assignment: String,

    #[command(flatten)]
    meant: MeantArgs,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RouteArgs {
    /// The plugin that emits the events
    #[arg(long, value_name = "PLUGIN")]
    from: String,

    /// The type of the events
    #[arg(long, value_name = "TYPE")]
    event_type: String,

    /// The plugin that receives them
    #[arg(long, value_name = "PLUGIN")]
    to: String,

    #[command(flatten)]
    meant: MeantArgs,

    #[command(flatten)]
    tree: TreeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WebhookArgs {
    /// The path of the URL, such as /hook/orders
    #[arg(long, value_name = "PATH")]
    path: String,

    /// The plugin that receives an event for each delivery
    #[arg(long, value_name = "NAME", required_unless_present = "goal")]
    plugin: Option<String>,

    /// Publish an intent with this goal, instead of an event for a plugin
    #[arg(long, value_name = "GOAL", conflicts_with = "plugin")]
    goal: Option<String>,

    /// The namespace of the intent
    #[arg(long, value_name = "NAMESPACE", requires = "goal")]
    namespace: Option<String>,

    /// The name of the token whose key signs the deliveries; `config token create --secret` makes one without rights
    #[arg(long, value_name = "TOKEN")]
    secret_ref: String,

    /// The header with the signature: the HMAC-SHA256 of the body in hexadecimal, with or without sha256= before it
    #[arg(long, value_name = "HEADER")]
    signature_header: String,

    /// A name to show in lists
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The maximum size of a body, such as 64KB
    #[arg(long, value_name = "SIZE")]
    max_body_size: Option<String>,

    #[command(flatten)]
    meant: MeantArgs,

    #[command(flatten)]
    tree: TreeArgs,
}

impl PluginAction {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.plugins(),
            Self::Show(args) => {
                let wanted = format!("plugin:{}", args.name);
                show(&args.tree, Some(&wanted), true)
            }
            Self::Set(args) => {
                let assignment = format!("plugin:{}.{}", args.name, args.assignment);
                args.meant.make(&args.tree, |tree| {
                    edit::set(&tree.path, &tree.environment, &assignment)
                })
            }
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.tree,
            Self::Show(args) => &args.tree,
            Self::Set(args) => &args.tree,
        }
    }
}

impl RouteAction {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => {
                let columns = [("FROM", "from"), ("EVENT", "event_type"), ("TO", "to")];
                args.list("routes", &columns)
            }
            Self::Add(args) => args.change(edit::add_route),
            Self::Remove(args) => args.change(edit::remove_route),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.tree,
            Self::Add(args) | Self::Remove(args) => &args.tree,
        }
    }
}

impl WebhookAction {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        match self {
            Self::List(args) => args.webhooks(),
            Self::Add(args) => args.add(),
        }
    }

    pub(crate) fn tree(&self) -> &TreeArgs {
        match self {
            Self::List(args) => &args.tree,
            Self::Add(args) => &args.tree,
        }
    }
}

const NO_LISTEN: &str = "nothing receives deliveries yet: add `listen: 127.0.0.1:8081` or another address to `webhooks` in the configuration, and restart the service";

impl WebhookArgs {
    fn add(self) -> anyhow::Result<Exit> {
        let target = match (self.goal, self.plugin) {
            (Some(goal), _) => WebhookTarget::Publish {
                goal,
                namespace: self.namespace,
            },
            (None, plugin) => WebhookTarget::Plugin(plugin.unwrap_or_default()),
        };
        let webhook = Webhook {
            path: self.path,
            target,
            secret_ref: self.secret_ref,
            signature_header: self.signature_header,
            name: self.name,
            max_body_size: self.max_body_size,
        };
        let made = self.meant.make(&self.tree, |tree| {
            edit::add_webhook(&tree.path, &tree.environment, &webhook)
        })?;
        let config = self.tree.find()?.peek()?;
        if config
            .webhooks
            .and_then(|webhooks| webhooks.listen)
            .is_none()
        {
            out::note(NO_LISTEN);
        }
        Ok(made)
    }
}

impl PartListArgs {
    fn list(&self, wanted: &str, columns: &[(&str, &str)]) -> anyhow::Result<Exit> {
        let config = self.tree.find()?.peek()?;
        let found = config::get(&config, wanted).unwrap_or_else(|| json!([]));
        print(&self.tree, &found, |found| rows(found, columns))
    }

    /// An endpoint creates events for a plugin or publishes intents of a goal.
    fn webhooks(&self) -> anyhow::Result<Exit> {
        let config = self.tree.find()?.peek()?;
        let found = config::get(&config, "webhook:*").unwrap_or_else(|| json!([]));
        print(&self.tree, &found, |found| {
            let mut shown = found.clone();
            for endpoint in shown.as_array_mut().into_iter().flatten() {
                // The list also shows invalid entries.
                if let Some(endpoint) = endpoint.as_object_mut() {
                    let goal = endpoint
                        .get("publish")
                        .map(|publish| publish["goal"].clone());
                    endpoint.insert("goal".to_owned(), goal.unwrap_or_default());
                }
            }
            let columns = [
                ("PATH", "path"),
                ("PLUGIN", "plugin"),
                ("PUBLISHES", "goal"),
                ("HEADER", "signature_header"),
                ("NAME", "name"),
            ];
            rows(&shown, &columns)
        })
    }

    fn plugins(&self) -> anyhow::Result<Exit> {
        let whole = self.tree.find()?.peek()?.effective(MASK);
        let plugins = whole["plugins"].as_object().into_iter().flatten();
        let plugins = plugins.map(|(name, plugin)| {
            let schedules = plugin["schedules"].as_array().map_or(0, Vec::len);
            let (enabled, uses) = (&plugin["enabled"], &plugin["uses"]);
            json!({"name": name, "enabled": enabled, "uses": uses, "schedules": schedules})
        });
        let plugins = Value::Array(plugins.collect());
        let columns = [
            ("NAME", "name"),
            ("ENABLED", "enabled"),
            ("USES", "uses"),
            ("SCHEDULES", "schedules"),
        ];
        print(&self.tree, &plugins, |plugins| rows(plugins, &columns))
    }
}

type RoutePlanner = fn(
    &std::path::Path,
    &config::Environment,
    &EventRoute,
) -> Result<edit::Edit, edit::EditRefused>;

impl RouteArgs {
    fn change(self, plan: RoutePlanner) -> anyhow::Result<Exit> {
        let route = EventRoute {
            from: self.from,
            event_type: self.event_type,
            to: self.to,
        };
        self.meant.make(&self.tree, |tree| {
            plan(&tree.path, &tree.environment, &route)
        })
    }
}
