//! Endpoints for webhooks added, in the text of the file that has the others.

use std::path::Path;

use serde_json::Value;

use super::entries::{item, with_entry};
use super::{Edit, Refused, by_hand, lines, located, readable};
use crate::config::find::Environment;
use crate::config::node::{Kind, Node};
use crate::config::sources::Drafts;
use crate::config::yaml::{Field, Shape, Spot};

const SECTION: &str = "webhooks";
const LIST: &str = "endpoints";

/// An endpoint as the configuration writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub path: String,
    pub target: WebhookTarget,
    /// The name of the token whose key signs.
    pub secret_ref: String,
    pub signature_header: String,
    pub name: Option<String>,
    pub max_body_size: Option<String>,
}

/// What it makes of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// An event for this plugin.
    Plugin(String),
    /// An intent of this goal.
    Publish {
        goal: String,
        namespace: Option<String>,
    },
}

impl Webhook {
    /// The lines of the entry.
    fn written(&self) -> String {
        // JSON's texts are YAML's too.
        let line = |key: &str, value: &str| format!("{key}: {}\n", Value::from(value));
        let may_be = |key: &str, value: &Option<String>| {
            let value = value.as_deref();
            value.map_or_else(String::new, |value| line(key, value))
        };
        let target = match &self.target {
            WebhookTarget::Plugin(plugin) => line("plugin", plugin),
            WebhookTarget::Publish { goal, namespace } => {
                let (goal, namespace) = (line("  goal", goal), may_be("  namespace", namespace));
                format!("publish:\n{goal}{namespace}")
            }
        };
        [
            line("path", &self.path),
            may_be("name", &self.name),
            target,
            line("secret_ref", &self.secret_ref),
            line("signature_header", &self.signature_header),
            may_be("max_body_size", &self.max_body_size),
        ]
        .concat()
    }
}

pub fn add_webhook(
    path: &Path,
    environment: &Environment,
    webhook: &Webhook,
) -> Result<Edit, Refused> {
    let merged = readable(path, environment, &Drafts::new())?.merged;
    let section = merged.get(SECTION);
    let known = section.and_then(|section| section.get(LIST));
    let known: &[Node] = match known.map(|list| &list.kind) {
        Some(Kind::List(items)) => items,
        _ => &[],
    };
    let path_of = |node: &Node| node.get("path").and_then(Node::text).map(str::to_owned);
    if known
        .iter()
        .any(|one| path_of(one).as_ref() == Some(&webhook.path))
    {
        let message = format!("there is an endpoint at {} already", webhook.path);
        let fix = "choose another --path, or change that one by hand; see `config webhook list`";
        return Err(Refused::new(message, fix));
    }
    let file = known.first().or(section).map_or(path, |node| &node.at.file);
    let (text, spots) = located(file)?;
    let changed = with_endpoint(&text, &spots, &webhook.written());
    let unfit = || {
        let file = file.display();
        by_hand(&format!("`{SECTION}` in {file} does not stand in lines"))
    };
    let mut edit = Edit::default();
    let changed = changed.ok_or_else(unfit)?;
    edit.writes.insert(file.to_owned(), changed.into_bytes());
    Ok(edit)
}

fn with_endpoint(text: &str, spots: &Spot, entry: &str) -> Option<String> {
    let Some(section) = spots.field(SECTION) else {
        let block = format!("{SECTION}:\n  {LIST}:\n{}", item(entry, 4));
        return Some(lines::appended(text, &block));
    };
    match &section.value.shape {
        // The older form, without a section.
        Shape::List(_) => with_entry(text, spots, SECTION, entry),
        Shape::Map(fields) => in_section(text, &section.value, fields.first()?, entry),
        Shape::Null => {
            let at = lines::block_end(text, section.start, 0);
            let head = lines::appended(&text[..at], &format!("  {LIST}:\n{}", item(entry, 4)));
            Some(format!("{head}{}", &text[at..]))
        }
        Shape::Scalar => None,
    }
}

/// `first` is any key of the section, which tells how deep they stand.
fn in_section(text: &str, section: &Spot, first: &Field, entry: &str) -> Option<String> {
    let indent = lines::indent_of(text, first.start)?;
    let (at, block) = match section.field(LIST) {
        None => {
            let block = format!("{}{LIST}:\n{}", " ".repeat(indent), item(entry, indent + 2));
            (lines::start_of(text, first.start), block)
        }
        Some(list) => match &list.value.shape {
            Shape::List(items) => {
                let first = items.first()?.bytes.start;
                let dash = lines::dash_of(text, first)?;
                (lines::start_of(text, first), item(entry, dash))
            }
            Shape::Null => {
                let at = lines::block_end(text, list.start, indent);
                (at, item(entry, indent + 2))
            }
            Shape::Scalar | Shape::Map(_) => return None,
        },
    };
    let head = lines::appended(&text[..at], &block);
    Some(format!("{head}{}", &text[at..]))
}
