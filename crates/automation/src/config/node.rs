//! A configuration as a tree in which every value knows its file and line.
//!
//! Numbers and booleans keep the text they were written as: a token `0042` is not the number 42. Maps keep their order.
//! Nothing here shows values when it is debugged, for many of them are secrets.

use std::fmt;

use serde_json::{Map, Number, Value};

use super::interpolate;
use super::problem::Place;

#[derive(Clone)]
pub struct Node {
    pub at: Place,
    pub kind: Kind,
    /// The value of a variable is in it.
    pub is_filled: bool,
}

#[derive(Clone)]
pub enum Kind {
    Null,
    Bool { value: bool, text: String },
    Number { value: Number, text: String },
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone)]
pub struct Entry {
    pub key: String,
    pub key_at: Place,
    pub value: Node,
}

impl Node {
    pub fn json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool { value, .. } => Value::Bool(*value),
            Kind::Number { value, .. } => Value::Number(value.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::json).collect()),
            Kind::Map(entries) => Value::Object(json_object(entries)),
        }
    }

    /// Whether a variable filled in anything of it.
    pub(crate) fn has_filled(&self) -> bool {
        self.is_filled
            || match &self.kind {
                Kind::List(items) => items.iter().any(Self::has_filled),
                Kind::Map(entries) => entries.iter().any(|entry| entry.value.has_filled()),
                Kind::Null | Kind::Bool { .. } | Kind::Number { .. } | Kind::Text(_) => false,
            }
    }

    /// The same with `mask` in place of all that variables filled in.
    pub(super) fn json_unfilled(&self, mask: &str) -> Value {
        if self.is_filled && !matches!(self.kind, Kind::Null) {
            return Value::String(mask.to_owned());
        }
        match &self.kind {
            Kind::List(items) => {
                let items = items.iter();
                items.map(|item| item.json_unfilled(mask)).collect()
            }
            Kind::Map(entries) => {
                let shown = entries.iter().map(|entry| {
                    let value = entry.value.json_unfilled(mask);
                    (entry.key.clone(), value)
                });
                Value::Object(shown.collect())
            }
            Kind::Null | Kind::Bool { .. } | Kind::Number { .. } | Kind::Text(_) => self.json(),
        }
    }

    /// Marks all in which this tree differs from its outline, which was read before variables were filled in, and tells
    /// the scalars among it with what they were written as.
    ///
    /// A list or map that has other items or keys is marked whole: the value of a variable is somewhere in it.
    pub(super) fn mark_filled(&mut self, outline: &Self, tell: &mut dyn FnMut(&str, &str)) {
        if let (Some(text), Some(outlined)) = (self.text(), outline.text()) {
            let written = interpolate::written(outlined);
            if text != written {
                tell(text, &written);
                self.is_filled = true;
            }
            return;
        }
        let is_other = match (&mut self.kind, &outline.kind) {
            (Kind::Null, Kind::Null) => false,
            (Kind::List(items), Kind::List(outlined)) if items.len() == outlined.len() => {
                for (item, outlined) in items.iter_mut().zip(outlined) {
                    item.mark_filled(outlined, tell);
                }
                false
            }
            (Kind::Map(entries), Kind::Map(outlined)) if have_same_keys(entries, outlined) => {
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
            Kind::List(items) => items.iter_mut().for_each(Self::mark_all_filled),
            Kind::Map(entries) => {
                let values = entries.iter_mut().map(|entry| &mut entry.value);
                values.for_each(Self::mark_all_filled);
            }
            Kind::Null | Kind::Bool { .. } | Kind::Number { .. } | Kind::Text(_) => {}
        }
    }

    /// A scalar as it was written; nothing for lists, maps and null.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Bool { text, .. } | Kind::Number { text, .. } | Kind::Text(text) => Some(text),
            Kind::Null | Kind::List(_) | Kind::Map(_) => None,
        }
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            Kind::Null
            | Kind::Bool { .. }
            | Kind::Number { .. }
            | Kind::Text(_)
            | Kind::List(_) => &[],
        }
    }

    pub fn get(&self, key: &str) -> Option<&Self> {
        let entry = self.entries().iter().find(|entry| entry.key == key)?;
        Some(&entry.value)
    }

    /// Absent in the sense of merging: it says nothing, so it replaces nothing.
    pub(super) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Null => true,
            Kind::Text(text) => text.is_empty(),
            Kind::Bool { .. } | Kind::Number { .. } | Kind::List(_) | Kind::Map(_) => false,
        }
    }

    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool { .. } => "true or false",
            Kind::Number { .. } => "a number",
            Kind::Text(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// Calls `visit` for every text in the tree, in order.
    pub(super) fn each_text(&self, visit: &mut dyn FnMut(&Place, &str)) {
        match &self.kind {
            Kind::Text(text) => visit(&self.at, text),
            Kind::List(items) => items.iter().for_each(|item| item.each_text(visit)),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key_at, &entry.key);
                entry.value.each_text(visit);
            }),
            Kind::Null | Kind::Bool { .. } | Kind::Number { .. } => {}
        }
    }
}

fn have_same_keys(entries: &[Entry], outlined: &[Entry]) -> bool {
    let mut pairs = entries.iter().zip(outlined);
    entries.len() == outlined.len()
        && pairs.all(|(entry, outlined)| entry.key == interpolate::written(&outlined.key))
}

fn json_object(entries: &[Entry]) -> Map<String, Value> {
    let pairs = entries.iter();
    pairs
        .map(|entry| (entry.key.clone(), entry.value.json()))
        .collect()
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line } = &self.at;
        write!(f, "{} at {}:{line}", self.kind_name(), file.display())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {:?}", self.key, self.value)
    }
}
