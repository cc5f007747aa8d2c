//! The settings of a key as arguments, and how they are shown.

use clap::ValueEnum;
use consign_client::{ApiKeyInfo, KeyOptions};

use super::span::Span;
use crate::render;

/// What a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    /// Publish intents and set values
    Publish,
    /// Claim intents and settle them
    Claim,
    /// Read its own intents, histories, events and values
    Read,
    /// Read through the routes of operators
    AdminRead,
    /// Use all routes of operators
    Admin,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings of the key")]
pub(crate) struct SettingsArgs {
    /// What the key is for; shown in lists
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    /// What the key may do; may be repeated [default: publish, claim and read]
    #[arg(long = "scope", value_name = "SCOPE", value_enum)]
    scopes: Vec<ScopeArg>,

    /// Where it may do so: a namespace, or the beginning of names followed by *; may be repeated [default: all that are
    /// not reserved]
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,

    /// Requests per minute [default: 60]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// How many of its intents may be open [default: 2000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    open_max: Option<u64>,

    /// When the key ends, from now, as 90d or 12h; 0 for never
    #[arg(long, value_name = "TIME")]
    expires: Option<Span>,
}

impl SettingsArgs {
    pub(crate) fn options(&self) -> KeyOptions {
        let scopes = self.scopes.iter().filter_map(ValueEnum::to_possible_value);
        let scopes: Vec<String> = scopes.map(|scope| scope.get_name().to_owned()).collect();
        let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
        KeyOptions {
            name: self.name.clone(),
            scopes: some(scopes),
            namespaces: some(self.namespaces.clone()),
            rate: self.rate,
            open_max: self.open_max,
            expires_in: self.expires.map(|span| span.seconds),
        }
    }
}

/// A key with all that the server tells about it.
pub(crate) fn human(key: &ApiKeyInfo) -> String {
    let list = |texts: &[String], otherwise: &str| {
        if texts.is_empty() {
            otherwise.to_owned()
        } else {
            render::safe(&texts.join(", "))
        }
    };
    let at = |time: Option<f64>, otherwise: &str| time.map_or(otherwise.to_owned(), render::time);
    render::fields(&[
        ("id", Some(render::safe(&key.id))),
        (
            "name",
            Some(render::safe(&key.name)).filter(|name| !name.is_empty()),
        ),
        ("owner", Some(render::safe(&key.owner))),
        ("scopes", Some(list(&key.scopes, "-"))),
        ("namespaces", Some(list(&key.namespaces, "all"))),
        ("grants", Some(list(&key.grants, "none"))),
        ("rate", Some(format!("{} requests a minute", key.rate))),
        ("open intents", Some(format!("at most {}", key.open_max))),
        ("requests", Some(key.total_requests.to_string())),
        ("created", Some(render::time(key.created_at))),
        ("last used", Some(at(key.last_used_at, "never"))),
        ("expires", Some(at(key.expires_at, "never"))),
        (
            "old secret",
            key.past_secret_until
                .map(|until| format!("accepted until {}", render::time(until))),
        ),
    ])
}
