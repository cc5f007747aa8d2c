//! Reads the keys of one section: a wrong value is a problem with its line, an unknown key a warning.

use std::cell::RefCell;
use std::fmt::Display;
use std::time::Duration;

use super::node::{ConfigNode, NodeKind};
use super::problem::{ConfigProblems, SourcePosition, wrong_kind};
use crate::scalar::{self, ScalarError};

pub(super) struct SectionReader<'a> {
    node: Option<&'a ConfigNode>,
    /// The dotted path of the section; empty at the top level.
    path: String,
    pub at: SourcePosition,
    asked: Vec<&'static str>,
    report: &'a RefCell<ConfigProblems>,
}

impl<'a> SectionReader<'a> {
    pub(super) fn top(
        node: &'a ConfigNode,
        path: impl Into<String>,
        report: &'a RefCell<ConfigProblems>,
    ) -> Self {
        let path = path.into();
        let fits = matches!(node.kind, NodeKind::Map(_) | NodeKind::Null);
        if !fits {
            wrong_kind(&mut report.borrow_mut(), node, &path, "a map of keys");
        }
        Self {
            node: fits.then_some(node),
            path,
            at: node.at.clone(),
            asked: Vec::new(),
            report,
        }
    }

    /// The section under a key; a missing section reads as empty.
    pub(super) fn section(&mut self, key: &'static str) -> Self {
        let path = self.path_of(key);
        match self.node(key) {
            Some(node) => Self::top(node, path, self.report),
            None => Self {
                node: None,
                path,
                at: self.at.clone(),
                asked: Vec::new(),
                report: self.report,
            },
        }
    }

    /// The value of a key, unless it is null.
    pub(super) fn node(&mut self, key: &'static str) -> Option<&'a ConfigNode> {
        self.asked.push(key);
        let found = self.node?.get(key)?;
        (!matches!(found.kind, NodeKind::Null)).then_some(found)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let node = self.node(key)?;
        let text = node.text();
        if text.is_none() {
            self.wrong_kind(node, key, "text");
        }
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    }

    /// A required text.
    pub(super) fn needed_text(&mut self, key: &'static str) -> Option<String> {
        let found = self.text(key);
        if found.is_none() {
            let message = format!("`{}` is missing", self.path_of(key));
            self.report.borrow_mut().error(&self.at, message, "");
        }
        found
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        let node = self.node(key)?;
        let found = match node.text().map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "yes" | "on") => Some(true),
            Some("false" | "no" | "off") => Some(false),
            _ => None,
        };
        if found.is_none() {
            self.wrong_kind(node, key, "true or false");
        }
        found
    }

    pub(super) fn count(&mut self, key: &'static str, least: usize) -> Option<usize> {
        let node = self.node(key)?;
        let found = match &node.kind {
            NodeKind::Number { value, .. } => {
                value.as_u64().and_then(|value| usize::try_from(value).ok())
            }
            NodeKind::Null
            | NodeKind::Bool { .. }
            | NodeKind::Text(_)
            | NodeKind::List(_)
            | NodeKind::Map(_) => None,
        };
        let found = found.filter(|found| *found >= least);
        if found.is_none() {
            let path = self.path_of(key);
            let message = format!("`{path}` must be a whole number of at least {least}");
            self.error(&node.at, message, "");
        }
        found
    }

    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        self.scalar(key, scalar::duration)
    }

    pub(super) fn size(&mut self, key: &'static str) -> Option<u64> {
        self.scalar(key, scalar::size)
    }

    pub(super) fn scalar<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, ScalarError>,
    ) -> Option<T> {
        let node = self.node(key)?;
        scalar_of(node, &self.path_of(key), read, self.report)
    }

    /// One of a fixed set of words.
    pub(super) fn word(
        &mut self,
        key: &'static str,
        words: &[&'static str],
    ) -> Option<&'static str> {
        let node = self.node(key)?;
        let found = node.text();
        let found = words.iter().find(|word| Some(**word) == found).copied();
        if found.is_none() {
            let path = self.path_of(key);
            let message = format!("`{path}` must be one of {}", words.join(", "));
            self.error(&node.at, message, "");
        }
        found
    }

    pub(super) fn list(&mut self, key: &'static str) -> &'a [ConfigNode] {
        let Some(node) = self.node(key) else {
            return &[];
        };
        let NodeKind::List(items) = &node.kind else {
            self.wrong_kind(node, key, "a list");
            return &[];
        };
        items
    }

    pub(super) fn texts(&mut self, key: &'static str) -> Vec<String> {
        let mut texts = Vec::new();
        for item in self.list(key) {
            match item.text() {
                Some(text) => texts.push(text.to_owned()),
                None => self.wrong_kind(item, key, "a list of text"),
            }
        }
        texts
    }

    /// Marks keys as known that have no meaning here.
    pub(super) fn ignore(&mut self, keys: &[&'static str]) {
        self.asked.extend(keys);
    }

    /// The position of a key's value, or of the section if it has none.
    pub(super) fn position_of(&self, key: &str) -> SourcePosition {
        let found = self.node.and_then(|node| node.get(key));
        found.map_or_else(|| self.at.clone(), |node| node.at.clone())
    }

    pub(super) fn error(
        &self,
        at: &SourcePosition,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.report.borrow_mut().error(at, message, fix);
    }

    pub(super) fn warn(
        &self,
        at: &SourcePosition,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.report.borrow_mut().warn(at, message, fix);
    }

    pub(super) fn notice(
        &self,
        at: &SourcePosition,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.report.borrow_mut().notice(at, message, fix);
    }

    /// The path of a key in messages.
    pub(super) fn path_of(&self, key: impl Display) -> String {
        match self.path.as_str() {
            "" => key.to_string(),
            path => format!("{path}.{key}"),
        }
    }

    fn wrong_kind(&self, node: &ConfigNode, key: &str, expected: &str) {
        let path = self.path_of(key);
        wrong_kind(&mut self.report.borrow_mut(), node, &path, expected);
    }

    /// Warns about every key that was not read.
    pub(super) fn finish(self) {
        for entry in self.node.map(ConfigNode::entries).unwrap_or_default() {
            if self.asked.contains(&entry.key.as_str()) {
                continue;
            }
            let message = format!("unknown key `{}`", self.path_of(&entry.key));
            let fix = match nearest(&entry.key, &self.asked) {
                Some(near) => format!("did you mean `{near}`?"),
                None => String::new(),
            };
            self.warn(&entry.key_at, message, fix);
        }
    }
}

pub(super) fn scalar_of<T>(
    node: &ConfigNode,
    path: &str,
    read: impl Fn(&str) -> Result<T, ScalarError>,
    report: &RefCell<ConfigProblems>,
) -> Option<T> {
    let Some(text) = node.text() else {
        wrong_kind(&mut report.borrow_mut(), node, path, "text");
        return None;
    };
    match read(text) {
        Ok(found) => Some(found),
        Err(error) => {
            let message = format!("`{path}`: {error}");
            report.borrow_mut().error(&node.at, message, "");
            None
        }
    }
}

/// The most similar word, if at most two letters differ, and fewer than half.
pub(super) fn nearest<'w>(word: &str, words: &[&'w str]) -> Option<&'w str> {
    let near = words.iter().map(|known| (distance(word, known), *known));
    let (differ, known) = near.min()?;
    (differ <= 2 && differ * 2 < known.len()).then_some(known)
}

/// The edit distance of two words.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_du_014() {
        let words = ["tick_interval", "log_level", "name"];
        assert_eq!(nearest("tick_intervall", &words), Some("tick_interval"));
        assert_eq!(nearest("loglevel", &words), Some("log_level"));
        assert_eq!(nearest("game", &words), Some("name"));
        assert_eq!(nearest("x", &words), None);
        assert_eq!(nearest("workspace", &words), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
