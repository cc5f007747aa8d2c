//! Adds webhook endpoints in the text of the file that has the others.

use std::path::Path;

use serde_json::Value;

use super::entries::{item, with_entry};
use super::{Edit, EditRefused, edit_by_hand, lines, read_sources, text_with_spans};
use crate::config::find::Environment;
use crate::config::node::{ConfigNode, NodeKind};
use crate::config::sources::Drafts;
use crate::config::yaml::{FieldSpan, Shape, ValueSpan};

const SECTION: &str = "webhooks";
const LIST: &str = "endpoints";

/// An endpoint as written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub path: String,
    pub target: WebhookTarget,
    /// The name of the token whose key signs deliveries.
    pub secret_ref: String,
    pub signature_header: String,
    pub name: Option<String>,
    pub max_body_size: Option<String>,
}

/// What a delivery becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookTarget {
    /// An event for this plugin.
    Plugin(String),
    /// An intent with this goal.
    Publish {
        goal: String,
        namespace: Option<String>,
    },
}

impl Webhook {
    /// The lines of the entry.
    fn to_yaml(&self) -> String {
        // A JSON string is valid YAML.
        let line = |key: &str, value: &str| format!("{key}: {}\n", Value::from(value));
        let optional_line = |key: &str, value: &Option<String>| {
            let value = value.as_deref();
            value.map_or_else(String::new, |value| line(key, value))
        };
        let target = match &self.target {
            WebhookTarget::Plugin(plugin) => line("plugin", plugin),
            WebhookTarget::Publish { goal, namespace } => {
                let (goal, namespace) = (
                    line("  goal", goal),
                    optional_line("  namespace", namespace),
                );
                format!("publish:\n{goal}{namespace}")
            }
        };
        [
            line("path", &self.path),
            optional_line("name", &self.name),
            target,
            line("secret_ref", &self.secret_ref),
            line("signature_header", &self.signature_header),
            optional_line("max_body_size", &self.max_body_size),
        ]
        .concat()
    }
}

pub fn add_webhook(
    path: &Path,
    environment: &Environment,
    webhook: &Webhook,
) -> Result<Edit, EditRefused> {
    let merged = read_sources(path, environment, &Drafts::new())?.merged;
    let section = merged.get(SECTION);
    let known = section.and_then(|section| section.get(LIST));
    let known: &[ConfigNode] = match known.map(|list| &list.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &[],
    };
    let path_of = |node: &ConfigNode| {
        node.get("path")
            .and_then(ConfigNode::text)
            .map(str::to_owned)
    };
    if known
        .iter()
        .any(|one| path_of(one).as_ref() == Some(&webhook.path))
    {
        let message = format!("an endpoint at {} exists already", webhook.path);
        let fix = "choose another --path, or change that one by hand; see `config webhook list`";
        return Err(EditRefused::new(message, fix));
    }
    let file = known.first().or(section).map_or(path, |node| &node.at.file);
    let (text, spans) = text_with_spans(file)?;
    let changed = with_endpoint(&text, &spans, &webhook.to_yaml());
    let unfit = || {
        let file = file.display();
        edit_by_hand(&format!("`{SECTION}` in {file} is not in block style"))
    };
    let mut edit = Edit::default();
    let changed = changed.ok_or_else(unfit)?;
    edit.writes.insert(file.to_owned(), changed.into_bytes());
    Ok(edit)
}

fn with_endpoint(text: &str, spans: &ValueSpan, entry: &str) -> Option<String> {
    let Some(section) = spans.field(SECTION) else {
        let block = format!("{SECTION}:\n  {LIST}:\n{}", item(entry, 4));
        return Some(lines::appended(text, &block));
    };
    match &section.value.shape {
        // The older form: a plain list without a section.
        Shape::List(_) => with_entry(text, spans, SECTION, entry),
        Shape::Map(fields) => in_section(text, &section.value, fields.first()?, entry),
        Shape::Null => {
            let at = lines::block_end(text, section.start, 0);
            let head = lines::appended(&text[..at], &format!("  {LIST}:\n{}", item(entry, 4)));
            Some(format!("{head}{}", &text[at..]))
        }
        Shape::Scalar => None,
    }
}

/// `first` is any key of the section; it determines the indentation.
fn in_section(text: &str, section: &ValueSpan, first: &FieldSpan, entry: &str) -> Option<String> {
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
