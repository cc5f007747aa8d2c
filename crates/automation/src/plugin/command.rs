//! The commands of a manifest, written as a map or as a list.
//!
//! A command of unknown type is refused: the type decides which tokens may call it.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::manifest::Error;

#[derive(Clone, Debug, PartialEq)]
pub struct PluginCommand {
    pub name: String,
    pub access: CommandAccess,
    pub description: Option<String>,
    /// JSON Schema; the compact form is expanded.
    pub input_schema: Option<Value>,
    pub output_schema: Option<Value>,
    /// The payload paths that the command reads.
    pub consumes: Vec<String>,
    pub emits: Vec<DeclaredEvent>,
    pub idempotent: Option<bool>,
    pub retry_safe: Option<bool>,
}

/// Whether a command has side effects; a manifest that does not say is taken as `Write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandAccess {
    Read,
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredEvent {
    pub event: String,
    pub values: Vec<String>,
}

#[derive(Default)]
pub(super) struct RawCommands(Vec<(Option<String>, RawCommand)>);

#[derive(Default, Deserialize)]
struct RawCommand {
    name: Option<String>,
    #[serde(rename = "type")]
    access: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    values: Option<RawValues>,
    idempotent: Option<bool>,
    retry_safe: Option<bool>,
}

#[derive(Default, Deserialize)]
struct RawValues {
    consume: Option<Vec<String>>,
    emit: Option<Vec<RawEmitted>>,
}

#[derive(Deserialize)]
struct RawEmitted {
    event: Option<String>,
    values: Option<Vec<String>>,
}

// Implemented by hand, because an untagged enum would lose the types of the fields and the lines in error messages.
impl<'de> Deserialize<'de> for RawCommands {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CommandsVisitor)
    }
}

struct CommandsVisitor;

impl<'de> Visitor<'de> for CommandsVisitor {
    type Value = RawCommands;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("commands as a map from names, or as a list with names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawCommands, A::Error> {
        let mut commands = Vec::new();
        while let Some((name, command)) = map.next_entry::<String, Option<RawCommand>>()? {
            commands.push((Some(name), command.unwrap_or_default()));
        }
        Ok(RawCommands(commands))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawCommands, A::Error> {
        let mut commands = Vec::new();
        while let Some(mut command) = list.next_element::<RawCommand>()? {
            commands.push((command.name.take(), command));
        }
        Ok(RawCommands(commands))
    }
}

impl RawCommands {
    pub(super) fn checked(self) -> Result<Vec<PluginCommand>, Error> {
        if self.0.is_empty() {
            return Err(Error::Missing {
                key: "commands",
                fix: "at least one command, such as `commands: {poll: {type: read}}`",
            });
        }
        let mut names = BTreeSet::new();
        let mut commands = Vec::new();
        for (name, raw) in self.0 {
            let name = name.unwrap_or_default();
            if !is_name(&name) {
                let fix = "a name of letters, digits, `_` and `-` that starts with a letter";
                return Err(Error::unfit("commands.name", &name, fix));
            }
            if !names.insert(name.clone()) {
                return Err(Error::unfit("commands.name", &name, "every name once"));
            }
            commands.push(command(name, raw)?);
        }
        Ok(commands)
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn command(name: String, raw: RawCommand) -> Result<PluginCommand, Error> {
    let key = |rest: &str| format!("commands.{name}.{rest}");
    let access = match raw.access.as_deref() {
        None | Some("write") => CommandAccess::Write,
        Some("read") => CommandAccess::Read,
        Some(other) => return Err(Error::unfit(key("type"), other, "`read` or `write`")),
    };
    let values = raw.values.unwrap_or_default();
    let consumes = payload_paths(&key("values.consume"), values.consume)?;
    let mut emits = Vec::new();
    for emitted in values.emit.unwrap_or_default() {
        let event = emitted.event.unwrap_or_default();
        if event.trim().is_empty() {
            let fix = "the type of the event";
            return Err(Error::unfit(key("values.emit.event"), &event, fix));
        }
        let values = payload_paths(&key("values.emit.values"), emitted.values)?;
        emits.push(DeclaredEvent { event, values });
    }
    Ok(PluginCommand {
        input_schema: schema(&key("input_schema"), raw.input_schema)?,
        output_schema: schema(&key("output_schema"), raw.output_schema)?,
        name,
        access,
        description: raw.description,
        consumes,
        emits,
        idempotent: raw.idempotent,
        retry_safe: raw.retry_safe,
    })
}

fn payload_paths(key: &str, paths: Option<Vec<String>>) -> Result<Vec<String>, Error> {
    let paths = paths.unwrap_or_default();
    match paths.iter().find(|path| !is_payload_path(path)) {
        Some(path) => Err(Error::unfit(
            key,
            path,
            "`payload`, `payload.*` or a path such as `payload.user.id`",
        )),
        None => Ok(paths),
    }
}

/// The whole payload, written as `payload` or `payload.*`, or a path into it.
fn is_payload_path(path: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    let path = path.trim();
    path == "payload"
        || path
            .strip_prefix("payload.")
            .is_some_and(|rest| rest == "*" || rest.split('.').all(is_part))
}

/// A schema as written, or expanded from the compact `{field: type}`.
fn schema(key: &str, raw: Option<Value>) -> Result<Option<Value>, Error> {
    match raw {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(any)) => Ok(Some(Value::Bool(any))),
        Some(Value::Object(fields)) if fields.contains_key("type") => {
            Ok(Some(Value::Object(fields)))
        }
        Some(Value::Object(fields)) => {
            let properties: Map<String, Value> = fields
                .into_iter()
                .map(|(field, value)| match value {
                    Value::String(kind) => (field, json!({ "type": kind })),
                    Value::Null
                    | Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_) => (field, value),
                })
                .collect();
            Ok(Some(json!({ "type": "object", "properties": properties })))
        }
        Some(other @ (Value::Number(_) | Value::String(_) | Value::Array(_))) => Err(Error::unfit(
            key,
            &other.to_string(),
            "a JSON Schema, true or false, or `{field: type}`",
        )),
    }
}
