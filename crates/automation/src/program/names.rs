//! Validates the names of plugins and commands wherever the configuration uses them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::load::top_level_position;
use crate::config::model::{EndpointTarget, WebhookEndpoint};
use crate::config::{Config, ConfigNode, ConfigProblems, SourcePosition};
use crate::pipeline::{
    LoadError, PUBLISH_PLUGIN, Pipeline, PluginCatalogue, Router, SEND_PLUGIN, StepKind, Trigger,
};
use crate::plugin::discovery::Discovery;
use crate::plugin::manifest::PluginManifest;

/// What each name refers to: a discovered plugin, or one that is only configured.
pub(super) struct KnownNames {
    /// `None` if the manifest was not found or refused.
    plugins: BTreeMap<String, Option<Arc<PluginManifest>>>,
}

impl KnownNames {
    pub(super) fn new(config: &Config, discovery: &Discovery) -> Self {
        let manifest = |base: &str| Some(discovery.plugins.get(base)?.manifest.clone());
        let found = discovery.plugins.keys();
        let mut plugins: BTreeMap<_, _> = found
            .map(|name| (name.clone(), manifest(name.as_str())))
            .collect();
        for (name, plugin) in &config.plugins {
            let base = plugin.uses.as_deref().unwrap_or(name);
            plugins.insert(name.clone(), manifest(base));
        }
        // Steps of the core have no manifest.
        for core in [PUBLISH_PLUGIN, SEND_PLUGIN] {
            plugins.insert(core.to_owned(), None);
        }
        Self { plugins }
    }
}

/// Enabled plugins that cannot be resolved: name, problem and fix.
pub(super) fn undiscoverable(
    config: &Config,
    discovery: &Discovery,
) -> Vec<(String, String, String)> {
    let is_there =
        |name: &str| discovery.plugins.contains_key(name) || discovery.skipped.contains(name);
    let mut found = Vec::new();
    for (name, plugin) in config.plugins.iter().filter(|(_, one)| one.enabled) {
        let is_alias = |name: &str| {
            let plugin = config.plugins.get(name);
            plugin.is_some_and(|plugin| plugin.uses.is_some())
        };
        let (message, fix) = match plugin.uses.as_deref() {
            None if is_there(name) => continue,
            None => (
                format!("no manifest below the plugin roots has the name `{name}`"),
                format!("install it, correct the name, or set `plugins.{name}.enabled: false`"),
            ),
            Some(_) if discovery.plugins.contains_key(name) => (
                format!("`{name}` uses another plugin, and one of its own name was found too"),
                "rename the alias".to_owned(),
            ),
            Some(base) if is_alias(base) => (
                format!("`plugins.{name}.uses` names `{base}`, which is an alias itself"),
                "use the plugin behind it".to_owned(),
            ),
            Some(base) if is_there(base) => continue,
            Some(base) => (
                format!("`plugins.{name}.uses` names `{base}`, which was not found"),
                "install it or correct the name".to_owned(),
            ),
        };
        found.push((name.clone(), message, fix));
    }
    found
}

impl PluginCatalogue for KnownNames {
    fn has_plugin(&self, plugin: &str) -> bool {
        self.plugins.contains_key(plugin)
    }

    fn has_command(&self, plugin: &str, command: &str) -> bool {
        let manifest = self.plugins.get(plugin).and_then(Option::as_ref);
        manifest.is_none_or(|manifest| manifest.command(command).is_some())
    }
}

pub(super) fn check_schedules(config: &Config, names: &KnownNames, problems: &mut ConfigProblems) {
    for (name, plugin) in config.plugins.iter().filter(|(_, one)| one.enabled) {
        for (node, index) in plugin.schedules.iter().zip(0..) {
            let written = node.get("command");
            let command = written.and_then(ConfigNode::text).unwrap_or("poll");
            // A scheduled `handle` was refused already.
            if command == "handle" || names.has_command(name, command) {
                continue;
            }
            let at = written.unwrap_or(node).at.clone();
            let message = format!(
                "`plugins.{name}.schedules[{index}]`: the plugin has no command `{command}`"
            );
            problems.error(
                &at,
                message,
                "schedule a command that its manifest declares",
            );
        }
    }
}

pub(super) fn check_served_goals(
    config: &Config,
    names: &KnownNames,
    problems: &mut ConfigProblems,
) {
    for (name, plugin) in config.plugins.iter().filter(|(_, one)| one.enabled) {
        for served in &plugin.serves {
            let command = &served.command;
            if !names.has_command(name, command) {
                let message =
                    format!("`plugins.{name}.serves`: the plugin has no command `{command}`");
                let fix = "name a command that its manifest declares";
                problems.error(&served.at, message, fix);
            }
        }
    }
}

pub(crate) const UNSERVED_WEBHOOKS: &str =
    "`webhooks` has endpoints and no `listen`, so nothing receives their deliveries";
pub(crate) const WEBHOOKS_LISTEN: &str =
    "add an address, such as `listen: 127.0.0.1:8081`, to `webhooks`, and restart the service";

/// An endpoint of webhooks that no address is set for.
pub(crate) fn unserved_webhook(config: &Config) -> Option<&WebhookEndpoint> {
    let webhooks = config.webhooks.as_ref()?;
    let is_served = webhooks.listen.is_some();
    webhooks.endpoints.first().filter(|_| !is_served)
}

pub(super) fn check_webhooks(config: &Config, names: &KnownNames, problems: &mut ConfigProblems) {
    if let Some(first) = unserved_webhook(config) {
        problems.warn(&first.at, UNSERVED_WEBHOOKS, WEBHOOKS_LISTEN);
    }
    let webhooks = config.webhooks.iter();
    for endpoint in webhooks.flat_map(|webhooks| &webhooks.endpoints) {
        let EndpointTarget::Plugin(plugin) = &endpoint.target else {
            continue;
        };
        if !names.has_command(plugin, "handle") {
            let message = format!("the plugin `{plugin}` has no command `handle` for a webhook");
            problems.error(&endpoint.at, message, "name a plugin that handles events");
        }
        warn_if_disabled(config, plugin, "a webhook", &endpoint.at, problems);
    }
}

/// Every event that a message becomes must start a pipeline.
pub(super) fn check_received(config: &Config, router: &Router, problems: &mut ConfigProblems) {
    let of_agents = config.received.iter().map(|received| {
        let (agent, intent) = (&received.agent, &received.intent);
        let what = format!("the messages `{intent}` for {agent}");
        (&received.at, &received.event, what)
    });
    let of_meshes = config.received_items.iter().map(|received| {
        let what = format!("the messages of {}", received.source);
        (&received.at, &received.event, what)
    });
    for (at, event, what) in of_agents.chain(of_meshes) {
        let starts = |pipeline: &Pipeline| pipeline.trigger == Trigger::Event(event.clone());
        if !router.pipelines().iter().any(starts) {
            let message = format!("no pipeline has `on: {event}`, so {what} would be lost");
            let fix = "add such a pipeline, or correct `event`";
            problems.error(at, message, fix);
        }
    }
}

/// Builds the router; `None` if a route or a pipeline is invalid.
pub(super) fn router(
    config: &Config,
    names: &KnownNames,
    problems: &mut ConfigProblems,
) -> Option<Router> {
    // Routes with unknown names were reported when the configuration was read.
    let known = |node: &&ConfigNode| {
        ["from", "to"].iter().all(|key| {
            let name = node.get(key).and_then(ConfigNode::text);
            name.is_some_and(|name| config.plugins.contains_key(name))
        })
    };
    let routes: Vec<&ConfigNode> = config.routes.iter().filter(known).collect();
    for route in &routes {
        for key in ["from", "to"] {
            let name = route
                .get(key)
                .and_then(ConfigNode::text)
                .unwrap_or_default();
            warn_if_disabled(config, name, "a route", &route.at, problems);
        }
    }
    let pipelines: Value = config.pipelines.iter().map(ConfigNode::json).collect();
    let routes_json: Value = routes.iter().map(|node| node.json()).collect();
    let position = |error: &LoadError| error_position(error, &config.pipelines, &routes, config);
    match Router::load(&pipelines, &routes_json, names) {
        Ok(router) => {
            for warning in router.warnings() {
                // Unknown keys of routes were reported when the configuration was read.
                if !warning.place.starts_with("routes[") {
                    problems.warn(&position(warning), warning.to_string(), "");
                }
            }
            warn_of_idle_steps(config, &router, problems);
            Some(router)
        }
        Err(errors) => {
            for error in errors {
                problems.error(&position(&error), error.to_string(), "");
            }
            None
        }
    }
}

fn warn_of_idle_steps(config: &Config, router: &Router, problems: &mut ConfigProblems) {
    for pipeline in router.pipelines() {
        let node = config.pipelines.iter().find(|node| {
            let name = node.get("name").and_then(ConfigNode::text);
            name == Some(pipeline.name.as_str())
        });
        let at = node.map_or_else(
            || top_level_position(config, "pipelines"),
            |node| node.at.clone(),
        );
        let what = format!("the pipeline `{}`", pipeline.name);
        for node in pipeline.graph.nodes() {
            if let StepKind::Step(uses) = &node.kind {
                warn_if_disabled(config, &uses.plugin, &what, &at, problems);
            }
        }
    }
}

fn warn_if_disabled(
    config: &Config,
    plugin: &str,
    what: &str,
    at: &SourcePosition,
    problems: &mut ConfigProblems,
) {
    let configured = config.plugins.get(plugin);
    if configured.is_some_and(|configured| !configured.enabled) {
        let message = format!("{what} needs the plugin `{plugin}`, which is disabled");
        problems.warn(at, message, "enable it, or remove it here");
    }
}

/// The position of a route or pipeline that an error names by number or name.
fn error_position(
    error: &LoadError,
    pipelines: &[ConfigNode],
    routes: &[&ConfigNode],
    config: &Config,
) -> SourcePosition {
    let numbered = pipelines.iter().zip(0..).find(|(node, index)| {
        let name = node
            .get("name")
            .and_then(ConfigNode::text)
            .unwrap_or_default();
        error.place == format!("pipelines[{index}]") || error.place == format!("pipeline `{name}`")
    });
    let mut routes = routes.iter().zip(0..);
    let route = routes.find(|(_, index)| error.place == format!("routes[{index}]"));
    match (numbered, route) {
        (Some((node, _)), _) => node.at.clone(),
        (None, Some((node, _))) => node.at.clone(),
        (None, None) => config.merged.at.clone(),
    }
}
