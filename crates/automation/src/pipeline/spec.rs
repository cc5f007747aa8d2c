//! Pipelines as configured: parsed from JSON, with steps as a tree.

use std::time::Duration;

use serde_json::{Map, Value};

use super::baggage::BaggageClaims;
use super::condition::Condition;
use super::path::Root;
use super::router::SEND_PLUGIN;
use super::send;
use super::template::With;
use super::{Hook, PluginCatalogue};
use crate::scalar;

#[derive(Clone, Debug)]
pub(super) struct PipelineSpec {
    pub(super) name: String,
    pub(super) trigger: Trigger,
    pub(super) from_plugin: Option<String>,
    pub(super) condition: Option<Condition>,
    pub(super) synchronous: bool,
    pub(super) timeout: Duration,
    pub(super) max_depth: Option<u32>,
    pub(super) steps: Vec<StepSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    Event(String),
    Hook(Hook),
}

#[derive(Clone, Debug)]
pub(super) struct StepSpec {
    pub(super) id: Option<String>,
    pub(super) condition: Option<Condition>,
    pub(super) action: StepAction,
}

#[derive(Clone, Debug)]
pub(super) enum StepAction {
    Uses(Box<Uses>),
    Call(String),
    Sequence(Vec<StepSpec>),
    Split(Vec<StepSpec>),
}

/// A plugin command with its templates and claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Uses {
    pub plugin: String,
    pub command: String,
    pub with: With,
    pub claims: BaggageClaims,
}

const TIMEOUT: Duration = Duration::from_secs(30);
const NESTING_MAX: usize = 32;
const PIPELINE_KEYS: [&str; 9] = [
    "name",
    "on",
    "on-hook",
    "from_plugin",
    "if",
    "execution_mode",
    "timeout",
    "max_depth",
    "steps",
];
const ACTIONS: [&str; 5] = ["uses", "call", "steps", "split", "relay"];
const MODIFIERS: [&str; 4] = ["id", "if", "with", "baggage"];

/// Parses one pipeline; the error says what to change.
pub(super) fn pipeline(
    map: &Map<String, Value>,
    plugins: &dyn PluginCatalogue,
) -> Result<PipelineSpec, String> {
    let name = text(map, "name")?.ok_or("a pipeline needs a name")?;
    let trigger = match (text(map, "on")?, text(map, "on-hook")?) {
        (Some(event), None) => Trigger::Event(event.to_owned()),
        (None, Some(hook)) => Trigger::Hook(Hook::parse(hook).ok_or_else(|| {
            format!("on-hook `{hook}` is unknown; write job.completed, job.failed or job.timed_out")
        })?),
        (None, None) => return Err("it needs a trigger; write on: event.type, or on-hook".into()),
        (Some(_), Some(_)) => {
            return Err("it has both on and on-hook; write two pipelines instead".into());
        }
    };
    let condition = condition(map)?;
    if matches!(trigger, Trigger::Hook(_))
        && condition
            .as_ref()
            .is_some_and(|condition| condition.reads(Root::Context))
    {
        return Err("a hook carries no context; test payload in its if".into());
    }
    let from_plugin = text(map, "from_plugin")?.map(str::to_owned);
    if let Some(plugin) = from_plugin
        .as_deref()
        .filter(|plugin| !plugins.has_plugin(plugin))
    {
        return Err(format!("from_plugin `{plugin}` is not a configured plugin"));
    }
    let synchronous = match text(map, "execution_mode")?.unwrap_or("async") {
        "async" => false,
        "synchronous" => true,
        other => {
            return Err(format!(
                "execution_mode `{other}` is unknown; write async or synchronous"
            ));
        }
    };
    let timeout = text(map, "timeout")?.map(scalar::duration).transpose();
    let max_depth = match map.get("max_depth") {
        None | Some(Value::Null) => None,
        Some(depth) => {
            let depth = depth.as_u64().and_then(|depth| u32::try_from(depth).ok());
            Some(depth.ok_or("max_depth must be a whole number, 0 for unlimited")?)
        }
    };
    Ok(PipelineSpec {
        name: name.to_owned(),
        trigger,
        from_plugin,
        condition,
        synchronous,
        timeout: timeout
            .map_err(|error| format!("timeout: {error}"))?
            .unwrap_or(TIMEOUT),
        max_depth,
        steps: steps(map.get("steps"), "steps", plugins, 1)?,
    })
}

/// Unknown keys with their positions. Requires a pipeline that was parsed, so that its nesting is bounded.
pub(super) fn unknown_keys(map: &Map<String, Value>) -> Vec<String> {
    let mut found = unknown(map, &PIPELINE_KEYS, "");
    unknown_in_steps(map, "steps", "", &mut found);
    found
}

fn unknown_in_steps(map: &Map<String, Value>, key: &str, above: &str, found: &mut Vec<String>) {
    let steps = map.get(key).and_then(Value::as_array).into_iter().flatten();
    for (index, step) in steps.enumerate() {
        let Some(step) = step.as_object() else {
            continue;
        };
        let place = format!("{above}{key}[{index}]: ");
        found.extend(unknown(step, &[&ACTIONS[..], &MODIFIERS].concat(), &place));
        for inner in ["steps", "split"] {
            unknown_in_steps(step, inner, &place, found);
        }
    }
}

pub(super) fn unknown(map: &Map<String, Value>, known: &[&str], place: &str) -> Vec<String> {
    let unknown = map.keys().filter(|key| !known.contains(&key.as_str()));
    let warning = |key| {
        let known = known.join(", ");
        format!("{place}`{key}` is unknown and ignored; known are {known}")
    };
    unknown.map(warning).collect()
}

fn steps(
    list: Option<&Value>,
    key: &str,
    plugins: &dyn PluginCatalogue,
    depth: usize,
) -> Result<Vec<StepSpec>, String> {
    let list = list
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| format!("{key} must be a list of at least one step"))?;
    if depth > NESTING_MAX {
        return Err(format!(
            "steps may be nested {NESTING_MAX} deep; use call for the inner ones"
        ));
    }
    let numbered = list.iter().enumerate();
    let read = numbered.map(|(index, value)| {
        step(value, plugins, depth).map_err(|error| format!("{key}[{index}]: {error}"))
    });
    read.collect()
}

fn step(value: &Value, plugins: &dyn PluginCatalogue, depth: usize) -> Result<StepSpec, String> {
    let map = value
        .as_object()
        .ok_or("a step must be a mapping, such as {uses: plugin}")?;
    let given: Vec<&str> = ACTIONS
        .into_iter()
        .filter(|action| present(map, action))
        .collect();
    let [action] = given.as_slice() else {
        return Err(format!(
            "a step needs exactly one of uses, call, steps or split; this one has {}",
            given.len()
        ));
    };
    if *action != "uses"
        && let Some(extra) = ["with", "baggage"]
            .into_iter()
            .find(|key| present(map, key))
    {
        return Err(format!("{extra} belongs to a uses step; move it there"));
    }
    if ["steps", "split"].contains(action) && present(map, "if") {
        return Err(format!(
            "if cannot guard {action}; put the steps into a pipeline and call it"
        ));
    }
    let action = match *action {
        "uses" => StepAction::Uses(Box::new(uses(map, plugins)?)),
        "call" => StepAction::Call(text(map, "call")?.unwrap_or_default().to_owned()),
        "steps" => StepAction::Sequence(steps(map.get("steps"), "steps", plugins, depth + 1)?),
        "split" => StepAction::Split(steps(map.get("split"), "split", plugins, depth + 1)?),
        _ => {
            return Err(
                "relay to another instance is not supported; use a plugin that sends events".into(),
            );
        }
    };
    Ok(StepSpec {
        id: text(map, "id")?.map(str::to_owned),
        condition: condition(map)?,
        action,
    })
}

fn uses(map: &Map<String, Value>, plugins: &dyn PluginCatalogue) -> Result<Uses, String> {
    let uses = text(map, "uses")?.unwrap_or_default();
    let (plugin, command) = target(uses, plugins).ok_or_else(|| {
        format!("uses `{uses}` names no configured plugin; write plugin or plugin.command")
    })?;
    if !plugins.has_command(plugin, command) {
        return Err(format!(
            "plugin `{plugin}` has no command `{command}`; see its manifest"
        ));
    }
    let with = map
        .get("with")
        .filter(|with| !with.is_null())
        .map(With::from_json);
    let claims = map
        .get("baggage")
        .filter(|claims| !claims.is_null())
        .map(BaggageClaims::from_json);
    let with = with.transpose().map_err(|error| error.to_string())?;
    let with = with.unwrap_or_default();
    if plugin == SEND_PLUGIN {
        send::check(&with)?;
    }
    Ok(Uses {
        plugin: plugin.to_owned(),
        command: command.to_owned(),
        with,
        claims: claims
            .transpose()
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
    })
}

/// A full plugin name has precedence, even with dots; otherwise the last dot separates plugin and command.
fn target<'a>(uses: &'a str, plugins: &dyn PluginCatalogue) -> Option<(&'a str, &'a str)> {
    if plugins.has_plugin(uses) {
        return Some((uses, "handle"));
    }
    uses.rsplit_once('.')
        .filter(|(plugin, _)| plugins.has_plugin(plugin))
}

fn condition(map: &Map<String, Value>) -> Result<Option<Condition>, String> {
    let given = map.get("if").filter(|given| !given.is_null());
    let read = given.map(Condition::from_json).transpose();
    read.map_err(|error| format!("if: {error}"))
}

fn present(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
        Some(_) => Err(format!("{key} must be a text that is not empty")),
    }
}
