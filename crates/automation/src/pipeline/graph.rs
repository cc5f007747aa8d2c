//! A pipeline as a graph of steps.
//!
//! The graph is built from the end to the start, so that each step knows its followers. A job is a token that moves along the
//! edges: there is no join, and a step after a split is reached once from each branch.

use std::collections::{BTreeMap, HashSet};

use super::condition::Condition;
use super::spec::{PipelineSpec, StepAction, StepSpec, Uses};

/// Nested calls multiply; a pipeline this large is a mistake.
const NODES_MAX: usize = 1_000;
const CALLS_MAX: usize = 32;

#[derive(Clone, Debug)]
pub struct Graph {
    nodes: Vec<GraphNode>,
    entries: Vec<usize>,
    longest: u32,
}

#[derive(Clone, Debug)]
pub struct GraphNode {
    pub id: String,
    pub kind: StepKind,
    next: Vec<usize>,
}

#[derive(Clone, Debug)]
pub enum StepKind {
    Step(Box<Uses>),
    Switch(Box<Switch>),
}

/// The `if` of a step: true leads to the step, false to what follows it.
#[derive(Clone, Debug)]
pub struct Switch {
    pub condition: Condition,
    /// The plugin whose configuration `config.` paths read; a guarded call has none.
    pub plugin: Option<String>,
    otherwise: Vec<usize>,
}

impl Graph {
    pub(super) fn build(
        spec: &PipelineSpec,
        all: &BTreeMap<String, PipelineSpec>,
    ) -> Result<Self, String> {
        let mut builder = Builder {
            all,
            nodes: Vec::new(),
            calling: vec![spec.name.clone()],
        };
        let entries = builder.pipeline(&spec.steps, "", Vec::new())?;
        let nodes = builder.nodes;
        let longest = longest(&nodes);
        Ok(Self {
            nodes,
            entries,
            longest,
        })
    }

    pub fn nodes(&self) -> &[GraphNode] {
        &self.nodes
    }

    pub fn entries(&self) -> impl Iterator<Item = &GraphNode> {
        self.entries.iter().map(|index| &self.nodes[*index])
    }

    pub fn node(&self, id: &str) -> Option<&GraphNode> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The nodes that follow a successful step, or a switch that evaluated to true.
    pub fn after<'a>(&'a self, node: &'a GraphNode) -> impl Iterator<Item = &'a GraphNode> {
        node.next.iter().map(|index| &self.nodes[*index])
    }

    /// The nodes that follow a switch that evaluated to false.
    pub fn otherwise<'a>(&'a self, switch: &'a Switch) -> impl Iterator<Item = &'a GraphNode> {
        switch.otherwise.iter().map(|index| &self.nodes[*index])
    }

    /// The number of plugin steps on the longest path.
    pub fn longest(&self) -> u32 {
        self.longest
    }
}

fn longest(nodes: &[GraphNode]) -> u32 {
    // Followers are built first, so they have smaller indexes and known lengths.
    let mut lengths: Vec<u32> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let (own, otherwise) = match &node.kind {
            StepKind::Step(_) => (1, &[][..]),
            StepKind::Switch(switch) => (0, switch.otherwise.as_slice()),
        };
        let after = node.next.iter().chain(otherwise);
        lengths.push(own + after.map(|index| lengths[*index]).max().unwrap_or(0));
    }
    lengths.into_iter().max().unwrap_or(0)
}

struct Builder<'a> {
    all: &'a BTreeMap<String, PipelineSpec>,
    nodes: Vec<GraphNode>,
    /// The pipelines that are being inlined, outermost first.
    calling: Vec<String>,
}

impl Builder<'_> {
    fn pipeline(
        &mut self,
        steps: &[StepSpec],
        prefix: &str,
        after: Vec<usize>,
    ) -> Result<Vec<usize>, String> {
        let mut ids = Ids::assign(steps)?;
        self.sequence(steps, prefix, &mut ids, after)
    }

    fn sequence(
        &mut self,
        steps: &[StepSpec],
        prefix: &str,
        ids: &mut Ids,
        after: Vec<usize>,
    ) -> Result<Vec<usize>, String> {
        let mut backwards = steps.iter().rev();
        backwards.try_fold(after, |after, step| self.step(step, prefix, ids, after))
    }

    /// Adds a step whose followers are `after`; returns its entry nodes.
    fn step(
        &mut self,
        step: &StepSpec,
        prefix: &str,
        ids: &mut Ids,
        after: Vec<usize>,
    ) -> Result<Vec<usize>, String> {
        let (id, plugin, inner) = match &step.action {
            StepAction::Sequence(steps) => return self.sequence(steps, prefix, ids, after),
            StepAction::Split(branches) => {
                let mut entries = Vec::new();
                for branch in branches.iter().rev() {
                    let mut found = self.step(branch, prefix, ids, after.clone())?;
                    found.append(&mut entries);
                    entries = found;
                }
                return Ok(entries);
            }
            StepAction::Uses(uses) => {
                let id = ids.of(step, prefix);
                let index = self.add(id.clone(), StepKind::Step(uses.clone()), after.clone())?;
                (id, Some(uses.plugin.clone()), vec![index])
            }
            StepAction::Call(name) => {
                let id = ids.of(step, prefix);
                (id.clone(), None, self.call(name, &id, after.clone())?)
            }
        };
        let Some(condition) = step.condition.clone() else {
            return Ok(inner);
        };
        let switch = StepKind::Switch(Box::new(Switch {
            condition,
            plugin,
            otherwise: after,
        }));
        Ok(vec![self.add(format!("{id}__switch"), switch, inner)?])
    }

    /// Inlines a pipeline. Its step ids are prefixed with the id of the call, so that two calls of one pipeline have different
    /// ids.
    fn call(&mut self, name: &str, id: &str, after: Vec<usize>) -> Result<Vec<usize>, String> {
        if self.calling.iter().any(|calling| calling == name) {
            let circle = self.calling.join(" -> ");
            return Err(format!("circular call: {circle} -> {name}"));
        }
        if self.calling.len() > CALLS_MAX {
            return Err(format!(
                "calls may be nested {CALLS_MAX} deep; flatten some of them"
            ));
        }
        let all = self.all;
        let called = all
            .get(name)
            .ok_or_else(|| format!("call `{name}` names no pipeline"))?;
        self.calling.push(name.to_owned());
        let entries = self.pipeline(&called.steps, &format!("{id}."), after)?;
        self.calling.pop();
        Ok(entries)
    }

    fn add(&mut self, id: String, kind: StepKind, next: Vec<usize>) -> Result<usize, String> {
        if self.nodes.len() == NODES_MAX {
            return Err(format!(
                "with its calls it has more than {NODES_MAX} steps; split it up"
            ));
        }
        if self.nodes.iter().any(|node| node.id == id) {
            return Err(format!("step id `{id}` is used twice; rename one"));
        }
        self.nodes.push(GraphNode { id, kind, next });
        Ok(self.nodes.len() - 1)
    }
}

/// The automatic ids of one pipeline. Steps are numbered in the order of the file but built backwards, so ids are taken from the
/// end.
struct Ids(Vec<String>);

impl Ids {
    fn assign(steps: &[StepSpec]) -> Result<Self, String> {
        let mut given = HashSet::new();
        let mut unnamed = 0;
        collect(steps, &mut given, &mut unnamed)?;
        let free = (1u32..).map(|number| format!("step_{number}"));
        let free = free.filter(|id| !given.contains(id.as_str()));
        Ok(Self(free.take(unnamed).collect()))
    }

    fn of(&mut self, step: &StepSpec, prefix: &str) -> String {
        let id = step.id.clone().or_else(|| self.0.pop());
        format!("{prefix}{}", id.unwrap_or_default())
    }
}

fn collect<'a>(
    steps: &'a [StepSpec],
    given: &mut HashSet<&'a str>,
    unnamed: &mut usize,
) -> Result<(), String> {
    for step in steps {
        if let Some(id) = &step.id
            && !given.insert(id)
        {
            return Err(format!("step id `{id}` is used twice; rename one"));
        }
        match &step.action {
            StepAction::Sequence(inner) | StepAction::Split(inner) => {
                collect(inner, given, unnamed)?;
            }
            StepAction::Uses(_) | StepAction::Call(_) => *unnamed += usize::from(step.id.is_none()),
        }
    }
    Ok(())
}
