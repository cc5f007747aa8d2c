//! Builds the router from the configured routes and pipelines, or reports all errors.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Map, Value};

use super::condition::Condition;
use super::graph::Graph;
use super::router::Router;
use super::spec::{self, PipelineSpec, Trigger};
use super::{HOPS_MAX, PluginCatalogue};

/// One error, or one warning about an unknown key, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct LoadError {
    pub place: String,
    pub problem: String,
}

/// A pipeline that is ready to run: calls are inlined and steps form a graph.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub name: String,
    pub trigger: Trigger,
    pub from_plugin: Option<String>,
    pub condition: Option<Condition>,
    pub synchronous: bool,
    pub timeout: Duration,
    /// As configured: the maximum number of hops in this pipeline, 0 for unlimited.
    pub max_depth: Option<u32>,
    pub graph: Graph,
}

impl Pipeline {
    fn new(spec: PipelineSpec, graph: Graph) -> Self {
        Self {
            name: spec.name,
            trigger: spec.trigger,
            from_plugin: spec.from_plugin,
            condition: spec.condition,
            synchronous: spec.synchronous,
            timeout: spec.timeout,
            max_depth: spec.max_depth,
            graph,
        }
    }

    /// Whether a job may be created that is `depth` hops from its first ancestor and `hop` hops into this pipeline. A pipeline
    /// that is longer than the general limit may still run to its end.
    pub(super) fn allows(&self, depth: u32, hop: u32) -> bool {
        match self.max_depth {
            Some(0) => true,
            Some(own) => hop <= own && depth <= HOPS_MAX.max(own),
            None => depth <= HOPS_MAX.max(self.graph.longest()),
        }
    }
}

impl Router {
    /// Both lists may be null. Errors are collected, one per route and pipeline, so that they can be fixed at once.
    /// [`Router::warnings`] lists ignored keys.
    pub fn load(
        pipelines: &Value,
        routes: &Value,
        plugins: &dyn PluginCatalogue,
    ) -> Result<Self, Vec<LoadError>> {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        let specs = read_pipelines(pipelines, plugins, &mut errors, &mut warnings);
        let routes = read_routes(routes, plugins, &mut errors, &mut warnings);
        let mut built = Vec::new();
        for (name, spec) in &specs {
            match Graph::build(spec, &specs) {
                Ok(graph) => built.push(Pipeline::new(spec.clone(), graph)),
                Err(problem) => errors.push(LoadError {
                    place: format!("pipeline `{name}`"),
                    problem,
                }),
            }
        }
        if errors.is_empty() {
            Ok(Self::new(built, routes, warnings))
        } else {
            Err(errors)
        }
    }
}

fn read_pipelines(
    value: &Value,
    plugins: &dyn PluginCatalogue,
    errors: &mut Vec<LoadError>,
    warnings: &mut Vec<LoadError>,
) -> BTreeMap<String, PipelineSpec> {
    let mut specs = BTreeMap::new();
    for (index, value) in items(value, "pipelines", errors).iter().enumerate() {
        let name = value.get("name").and_then(Value::as_str);
        let place = name.map_or_else(
            || format!("pipelines[{index}]"),
            |name| format!("pipeline `{name}`"),
        );
        let read = match value.as_object() {
            Some(map) => spec::pipeline(map, plugins),
            None => Err("a pipeline must be a mapping with name, on and steps".to_owned()),
        };
        if let (Ok(_), Some(map)) = (&read, value.as_object()) {
            warnings.extend(warn(&place, spec::unknown_keys(map)));
        }
        let problem = match read {
            Ok(spec) if specs.contains_key(&spec.name) => {
                "its name is used twice; rename one".to_owned()
            }
            Ok(spec) => {
                specs.insert(spec.name.clone(), spec);
                continue;
            }
            Err(problem) => problem,
        };
        errors.push(LoadError { place, problem });
    }
    specs
}

const ROUTE_KEYS: [&str; 3] = ["from", "event_type", "to"];

/// The targets of each (source plugin, event type).
pub(super) type Routes = HashMap<(String, String), Vec<String>>;

fn read_routes(
    value: &Value,
    plugins: &dyn PluginCatalogue,
    errors: &mut Vec<LoadError>,
    warnings: &mut Vec<LoadError>,
) -> Routes {
    let mut routes = Routes::new();
    for (index, value) in items(value, "routes", errors).iter().enumerate() {
        let place = format!("routes[{index}]");
        if let Some(map) = value.as_object() {
            warnings.extend(warn(&place, spec::unknown(map, &ROUTE_KEYS, "")));
        }
        match route(value.as_object(), plugins) {
            Ok((from, event_type, to)) => {
                let targets = routes.entry((from, event_type)).or_default();
                targets.push(to);
            }
            Err(problem) => errors.push(LoadError { place, problem }),
        }
    }
    routes
}

fn route(
    map: Option<&Map<String, Value>>,
    plugins: &dyn PluginCatalogue,
) -> Result<(String, String, String), String> {
    let field = |key: &str| {
        let text = map.and_then(|map| map.get(key)).and_then(Value::as_str);
        let text = text
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned);
        text.ok_or_else(|| format!("a route needs {key}; write from, event_type and to"))
    };
    let (from, event_type, to) = (field("from")?, field("event_type")?, field("to")?);
    for plugin in [&from, &to] {
        if !plugins.has_plugin(plugin) {
            return Err(format!("`{plugin}` is not a configured plugin"));
        }
    }
    if !plugins.has_command(&to, "handle") {
        return Err(format!(
            "plugin `{to}` has no command `handle`; see its manifest"
        ));
    }
    Ok((from, event_type, to))
}

fn warn(place: &str, problems: Vec<String>) -> impl Iterator<Item = LoadError> {
    problems.into_iter().map(move |problem| LoadError {
        place: place.to_owned(),
        problem,
    })
}

fn items<'a>(value: &'a Value, key: &str, errors: &mut Vec<LoadError>) -> &'a [Value] {
    match value {
        Value::Null => &[],
        Value::Array(items) => items,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            errors.push(LoadError {
                place: key.to_owned(),
                problem: "it must be a list".to_owned(),
            });
            &[]
        }
    }
}

#[cfg(test)]
mod tests;
