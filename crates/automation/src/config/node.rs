//! A configuration as a tree in which every value has its file and line.
//!
//! Numbers and booleans keep their original text: a token `0042` is not the number 42. Maps keep their order. `Debug` shows no
//! values, because many of them are secrets.

use std::fmt;

use serde_json::{Map, Number, Value};

use super::interpolate;
use super::problem::SourcePosition;

#[derive(Clone)]
pub struct ConfigNode {
    pub at: SourcePosition,
    pub kind: NodeKind,
    /// The value contains a substituted variable.
    pub is_filled: bool,
}

#[derive(Clone)]
pub enum NodeKind {
    Null,
    Bool { value: bool, text: String },
    Number { value: Number, text: String },
    Text(String),
    List(Vec<ConfigNode>),
    Map(Vec<MapEntry>),
}

#[derive(Clone)]
pub struct MapEntry {
    pub key: String,
    pub key_at: SourcePosition,
    pub value: ConfigNode,
}

impl ConfigNode {
    pub fn json(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool { value, .. } => Value::Bool(*value),
            NodeKind::Number { value, .. } => Value::Number(value.clone()),
            NodeKind::Text(text) => Value::String(text.clone()),
            NodeKind::List(items) => Value::Array(items.iter().map(Self::json).collect()),
            NodeKind::Map(entries) => Value::Object(json_object(entries)),
        }
    }

    /// Whether a variable was substituted anywhere in the tree.
    pub(crate) fn has_filled(&self) -> bool {
        self.is_filled
            || match &self.kind {
                NodeKind::List(items) => items.iter().any(Self::has_filled),
                NodeKind::Map(entries) => entries.iter().any(|entry| entry.value.has_filled()),
                NodeKind::Null
                | NodeKind::Bool { .. }
                | NodeKind::Number { .. }
                | NodeKind::Text(_) => false,
            }
    }

    /// The tree as JSON, with `mask` for all substituted values.
    pub(super) fn json_unfilled(&self, mask: &str) -> Value {
        if self.is_filled && !matches!(self.kind, NodeKind::Null) {
            return Value::String(mask.to_owned());
        }
        match &self.kind {
            NodeKind::List(items) => {
                let items = items.iter();
                items.map(|item| item.json_unfilled(mask)).collect()
            }
            NodeKind::Map(entries) => {
                let shown = entries.iter().map(|entry| {
                    let value = entry.value.json_unfilled(mask);
                    (entry.key.clone(), value)
                });
                Value::Object(shown.collect())
            }
            NodeKind::Null
            | NodeKind::Bool { .. }
            | NodeKind::Number { .. }
            | NodeKind::Text(_) => self.json(),
        }
    }

    /// Marks everything in which this tree differs from its outline, which was parsed before substitution. Calls `tell` with each
    /// changed scalar and its original text.
    ///
    /// A list or map with different items or keys is marked as a whole, because a substituted value is somewhere in it.
    pub(super) fn mark_filled(&mut self, outline: &Self, tell: &mut dyn FnMut(&str, &str)) {
        if let (Some(text), Some(outlined)) = (self.text(), outline.text()) {
            let written = interpolate::original(outlined);
            if text != written {
                tell(text, &written);
                self.is_filled = true;
            }
            return;
        }
        let is_other = match (&mut self.kind, &outline.kind) {
            (NodeKind::Null, NodeKind::Null) => false,
            (NodeKind::List(items), NodeKind::List(outlined)) if items.len() == outlined.len() => {
                for (item, outlined) in items.iter_mut().zip(outlined) {
                    item.mark_filled(outlined, tell);
                }
                false
            }
            (NodeKind::Map(entries), NodeKind::Map(outlined))
                if have_same_keys(entries, outlined) =>
            {
                for (entry, outlined) in entries.iter_mut().zip(outlined) {
                    entry.value.mark_filled(&outlined.value, tell);
                }
                false
            }
            (_, _) => true,
        };
        if is_other {
            self.mark_all_filled();
        }
    }

    fn mark_all_filled(&mut self) {
        self.is_filled = true;
        match &mut self.kind {
            NodeKind::List(items) => items.iter_mut().for_each(Self::mark_all_filled),
            NodeKind::Map(entries) => {
                let values = entries.iter_mut().map(|entry| &mut entry.value);
                values.for_each(Self::mark_all_filled);
            }
            NodeKind::Null
            | NodeKind::Bool { .. }
            | NodeKind::Number { .. }
            | NodeKind::Text(_) => {}
        }
    }

    /// The original text of a scalar; `None` for lists, maps and null.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Bool { text, .. } | NodeKind::Number { text, .. } | NodeKind::Text(text) => {
                Some(text)
            }
            NodeKind::Null | NodeKind::List(_) | NodeKind::Map(_) => None,
        }
    }

    pub fn entries(&self) -> &[MapEntry] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            NodeKind::Null
            | NodeKind::Bool { .. }
            | NodeKind::Number { .. }
            | NodeKind::Text(_)
            | NodeKind::List(_) => &[],
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    /// Empty values do not replace others in a merge.
    pub(super) fn is_empty(&self) -> bool {
        match &self.kind {
            NodeKind::Null => true,
            NodeKind::Text(text) => text.is_empty(),
            NodeKind::Bool { .. }
            | NodeKind::Number { .. }
            | NodeKind::List(_)
            | NodeKind::Map(_) => false,
        }
    }

    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Bool { .. } => "true or false",
            NodeKind::Number { .. } => "a number",
            NodeKind::Text(_) => "text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// Calls `visit` for every text in the tree, in order.
    pub(super) fn each_text(&self, visit: &mut dyn FnMut(&SourcePosition, &str)) {
        match &self.kind {
            NodeKind::Text(text) => visit(&self.at, text),
            NodeKind::List(items) => items.iter().for_each(|item| item.each_text(visit)),
            NodeKind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key_at, &entry.key);
                entry.value.each_text(visit);
            }),
            NodeKind::Null | NodeKind::Bool { .. } | NodeKind::Number { .. } => {}
        }
    }
}

fn have_same_keys(entries: &[MapEntry], outlined: &[MapEntry]) -> bool {
    let mut pairs = entries.iter().zip(outlined);
    entries.len() == outlined.len()
        && pairs.all(|(entry, outlined)| entry.key == interpolate::original(&outlined.key))
}

fn json_object(entries: &[MapEntry]) -> Map<String, Value> {
    let pairs = entries.iter();
    pairs
        .map(|entry| (entry.key.clone(), entry.value.json()))
        .collect()
}

impl fmt::Debug for ConfigNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourcePosition { file, line } = &self.at;
        write!(f, "{} at {}:{line}", self.kind_name(), file.display())
    }
}

impl fmt::Debug for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
}

impl fmt::Debug for MapEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {:?}", self.key, self.value)
    }
}
