//! What can be run: plugins, their commands, and pipelines.

use serde_json::{Map, Value, json};

use super::put;
use crate::config::{self, Config, MASK};
use crate::pipeline::{GraphNode, Pipeline, StepKind, Trigger};
use crate::plugin::command::{CommandAccess, PluginCommand};
use crate::program::{Plugin, Program};

const PROTOCOL: u32 = 2;

/// All plugins, by name.
pub fn plugin_list(program: &Program) -> Value {
    let plugins = program.plugins().map(|plugin| {
        let mut shown = plugin_summary(plugin);
        let names = plugin.manifest.commands.iter();
        let names: Vec<&str> = names.map(|command| command.name.as_str()).collect();
        put(&mut shown, "commands", Some(names));
        Value::Object(shown)
    });
    json!({"plugins": plugins.collect::<Vec<_>>()})
}

pub fn plugin_details(program: &Program, name: &str) -> Option<Value> {
    let plugin = program.plugin(name)?;
    let mut shown = plugin_summary(plugin);
    put(&mut shown, "protocol", Some(PROTOCOL));
    let commands = plugin.manifest.commands.iter().map(command_details);
    put(&mut shown, "commands", Some(commands.collect::<Vec<_>>()));
    Some(Value::Object(shown))
}

/// Everything that a caller may start, with its endpoint.
pub fn skills(program: &Program) -> Value {
    let mut skills = Vec::new();
    for plugin in program.plugins() {
        for command in &plugin.manifest.commands {
            let (name, command_name) = (&plugin.name, &command.name);
            let mut skill = Map::new();
            put(
                &mut skill,
                "name",
                Some(format!("plugin.{name}.{command_name}")),
            );
            put(&mut skill, "kind", Some("plugin"));
            put(&mut skill, "plugin", Some(name.clone()));
            put(&mut skill, "command", Some(command_name.clone()));
            put(
                &mut skill,
                "endpoint",
                Some(format!("POST /plugin/{name}/{command_name}")),
            );
            put(&mut skill, "tier", Some(tier(command.access)));
            put(&mut skill, "description", command.description.clone());
            put(&mut skill, "input_schema", command.input_schema.clone());
            put(&mut skill, "output_schema", command.output_schema.clone());
            skills.push(Value::Object(skill));
        }
    }
    for pipeline in program.pipelines() {
        let name = &pipeline.name;
        let mut skill = summary(pipeline);
        put(&mut skill, "name", Some(format!("pipeline.{name}")));
        put(&mut skill, "kind", Some("pipeline"));
        put(&mut skill, "pipeline", Some(name.clone()));
        put(
            &mut skill,
            "endpoint",
            Some(format!("POST /pipeline/{name}")),
        );
        put(&mut skill, "tier", Some("WRITE"));
        skills.push(Value::Object(skill));
    }
    json!({"skills": skills})
}

pub fn pipeline_list(program: &Program) -> Value {
    let pipelines = program.pipelines().iter().map(|pipeline| {
        let mut shown = summary(pipeline);
        put(&mut shown, "name", Some(pipeline.name.clone()));
        put(&mut shown, "steps", Some(pipeline.graph.nodes().len()));
        Value::Object(shown)
    });
    json!({"pipelines": pipelines.collect::<Vec<_>>()})
}

pub fn pipeline_details(program: &Program, name: &str) -> Option<Value> {
    let pipeline = program.router().pipeline(name)?;
    let mut shown = summary(pipeline);
    put(&mut shown, "name", Some(pipeline.name.clone()));
    put(&mut shown, "entries", Some(entries(pipeline)));
    let steps = pipeline.graph.nodes().iter().rev();
    let steps = steps.map(|node| Value::Object(step(program, pipeline, node)));
    put(&mut shown, "steps", Some(steps.collect::<Vec<_>>()));
    Some(Value::Object(shown))
}

/// The configuration without secrets, and its compiled pipelines.
pub fn configuration(program: &Program) -> Value {
    let mut shown = program.config().shown(MASK);
    let compiled = program.pipelines().iter().map(|pipeline| {
        let steps = pipeline.graph.nodes().iter().rev();
        let steps: Vec<Value> = steps
            .map(|node| Value::Object(step(program, pipeline, node)))
            .collect();
        let entries = entries(pipeline);
        (
            pipeline.name.clone(),
            json!({"entries": entries, "steps": steps}),
        )
    });
    let compiled: Map<String, Value> = compiled.collect();
    if let Value::Object(shown) = &mut shown {
        put(shown, "compiled_routes", Some(compiled));
    }
    shown
}

fn plugin_summary(plugin: &Plugin) -> Map<String, Value> {
    let mut shown = Map::new();
    put(&mut shown, "name", Some(plugin.name.clone()));
    let version = plugin.manifest.version.clone();
    put(&mut shown, "version", Some(version.unwrap_or_default()));
    put(
        &mut shown,
        "description",
        plugin.manifest.description.clone(),
    );
    put(&mut shown, "uses", plugin.base.clone());
    shown
}

fn command_details(command: &PluginCommand) -> Value {
    let mut shown = Map::new();
    put(&mut shown, "name", Some(command.name.clone()));
    let kind = match command.access {
        CommandAccess::Read => "read",
        CommandAccess::Write => "write",
    };
    put(&mut shown, "type", Some(kind));
    put(&mut shown, "description", command.description.clone());
    put(&mut shown, "input_schema", command.input_schema.clone());
    put(&mut shown, "output_schema", command.output_schema.clone());
    Value::Object(shown)
}

fn tier(access: CommandAccess) -> &'static str {
    match access {
        CommandAccess::Read => "READ",
        CommandAccess::Write => "WRITE",
    }
}

fn summary(pipeline: &Pipeline) -> Map<String, Value> {
    let mut shown = Map::new();
    let trigger = match &pipeline.trigger {
        Trigger::Event(kind) => kind.as_str(),
        Trigger::Hook(hook) => hook.as_str(),
    };
    put(&mut shown, "trigger", Some(trigger));
    let is_hook = matches!(pipeline.trigger, Trigger::Hook(_));
    put(&mut shown, "hook", is_hook.then_some(true));
    let mode = if pipeline.synchronous {
        "synchronous"
    } else {
        "async"
    };
    put(&mut shown, "execution_mode", Some(mode));
    put(&mut shown, "timeout_secs", Some(pipeline.timeout.as_secs()));
    shown
}

fn entries(pipeline: &Pipeline) -> Vec<String> {
    let entries = pipeline.graph.entries();
    entries.map(|node| node.id.clone()).collect()
}

/// Whether variables were substituted anywhere in a pipeline, and so perhaps in its conditions.
fn is_filled(config: &Config, pipeline: &str) -> bool {
    let is_it = |node: &&config::ConfigNode| {
        let name = node.get("name").and_then(|name| name.text());
        name == Some(pipeline)
    };
    match config.pipelines.iter().find(is_it) {
        Some(node) => node.has_filled(),
        None => config.routes.iter().any(config::ConfigNode::has_filled),
    }
}

pub(super) fn step(program: &Program, pipeline: &Pipeline, node: &GraphNode) -> Map<String, Value> {
    let mut shown = Map::new();
    put(&mut shown, "id", Some(node.id.clone()));
    let next = pipeline.graph.after(node);
    let next: Vec<String> = next.map(|node| node.id.clone()).collect();
    match &node.kind {
        StepKind::Step(uses) => {
            put(&mut shown, "kind", Some("step"));
            put(&mut shown, "plugin", Some(uses.plugin.clone()));
            put(&mut shown, "command", Some(uses.command.clone()));
        }
        StepKind::Switch(switch) => {
            put(&mut shown, "kind", Some("switch"));
            let condition = if is_filled(program.config(), &pipeline.name) {
                MASK.to_owned()
            } else {
                switch.condition.to_string()
            };
            put(&mut shown, "condition", Some(condition));
            let otherwise = pipeline.graph.otherwise(switch);
            let otherwise: Vec<String> = otherwise.map(|node| node.id.clone()).collect();
            put(&mut shown, "otherwise", Some(otherwise));
        }
    }
    put(&mut shown, "next", Some(next));
    shown
}
