//! `path=value`: replaces or adds one value.
//!
//! The new text is parsed again: it must contain the requested change and nothing else, or the edit is refused. So anchors,
//! unusual layouts and bugs here end in a refusal instead of a damaged file.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Edit, EditRefused, edit_by_hand, lines, read_sources, text_with_spans};
use crate::config::find::Environment;
use crate::config::interpolate;
use crate::config::node::{ConfigNode, NodeKind};
use crate::config::sources::Drafts;
use crate::config::yaml::{self, Shape, ValueSpan};

/// Plans the change `assignment`, such as `service.log_level=debug` or `plugin:mail.enabled=false`.
pub fn set(path: &Path, environment: &Environment, assignment: &str) -> Result<Edit, EditRefused> {
    let fix = "write it as `service.log_level=debug`";
    let (name, written) = assignment
        .split_once('=')
        .ok_or_else(|| EditRefused::new("the `=` between path and value is missing", fix))?;
    let name = match name.trim().strip_prefix("plugin:") {
        Some(plugin) => format!("plugins.{plugin}"),
        None => name.trim().to_owned(),
    };
    let segments: Vec<&str> = name.split('.').collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return Err(EditRefused::new(format!("`{name}` is not a path"), fix));
    }
    let (encoded, value) = scalar(written.trim())?;
    let before = read_sources(path, environment, &Drafts::new())?.merged;
    let (known, rest) = descend(&before, &segments);
    let (node, keys) = (known.node, known.keys);
    check_target(node, rest, &name)?;
    let file = node.at.file.to_path_buf();
    let (text, spans) = text_with_spans(&file)?;
    let lost = || edit_by_hand(&format!("`{name}` was not found in {}", file.display()));
    let span = keys.iter().try_fold(&spans, |span, key| {
        span.field(key).map(|field| &field.value)
    });
    let span = span.ok_or_else(lost)?;
    let changed = match rest {
        [] => replaced(&text, span, &encoded),
        rest => added(&text, span, keys.is_empty(), rest, &encoded),
    };
    let place = format!("`{name}` in {}:{}", file.display(), node.at.line);
    let changed =
        changed.ok_or_else(|| edit_by_hand(&format!("{place} cannot be changed in place")))?;
    let mut expected = structure(&file, &text).ok_or_else(lost)?;
    put(&mut expected, &keys, rest, value);
    if structure(&file, &changed) != Some(expected) {
        return Err(edit_by_hand(&format!(
            "{place} cannot be changed without affecting other values"
        )));
    }
    let mut edit = Edit::default();
    edit.writes.insert(file, changed.into_bytes());
    Ok(edit)
}

/// The contents of a file before variables are substituted.
fn structure(file: &Path, text: &str) -> Option<Value> {
    let tree = yaml::parse(&Arc::from(file), &interpolate::same_length_outline(text));
    tree.ok().map(|tree| tree.json())
}

/// A scalar as YAML text, and its value.
fn scalar(written: &str) -> Result<(String, Value), EditRefused> {
    let file = Arc::from(Path::new("value"));
    let parsed = yaml::parse(&file, &format!("v: {written}\n"));
    let parsed = parsed.ok().and_then(|tree| tree.get("v").cloned());
    match parsed.map(|node| node.kind) {
        _ if written.is_empty() => {
            let fix = "to remove a key, edit the file by hand";
            Err(EditRefused::new("the value after the `=` is missing", fix))
        }
        Some(NodeKind::Bool { value, .. }) => Ok((written.to_owned(), value.into())),
        Some(NodeKind::Number { value, .. }) => Ok((written.to_owned(), Value::Number(value))),
        Some(NodeKind::List(_) | NodeKind::Map(_)) if written.starts_with(['[', '{']) => {
            let fix = "edit lists and maps by hand, then run `config check`";
            Err(EditRefused::new("only scalars can be set", fix))
        }
        Some(NodeKind::Text(text)) if text == written && is_plain(written) => {
            Ok((written.to_owned(), Value::from(written)))
        }
        _ => {
            let meant = Value::from(interpolate::same_length_outline(written));
            Ok((Value::from(written).to_string(), meant))
        }
    }
}

/// Safe without quotes in block and flow style.
fn is_plain(text: &str) -> bool {
    let harmless = |c: char| c.is_alphanumeric() || "_-./@+".contains(c);
    text.chars().all(harmless)
}

/// The part of a path that exists in a tree.
struct KnownPath<'n> {
    node: &'n ConfigNode,
    keys: Vec<String>,
}

/// The deepest existing node, and the rest of the path. A key may contain dots.
fn descend<'n, 's>(node: &'n ConfigNode, path: &'s [&'s str]) -> (KnownPath<'n>, &'s [&'s str]) {
    let mut known = KnownPath {
        node,
        keys: Vec::new(),
    };
    let mut rest = path;
    while let Some((key, next, length)) = (1..=rest.len()).find_map(|length| {
        let key = rest[..length].join(".");
        let next = known.node.get(&key)?;
        Some((key, next, length))
    }) {
        known.node = next;
        known.keys.push(key);
        rest = &rest[length..];
    }
    (known, rest)
}

fn check_target(node: &ConfigNode, rest: &[&str], name: &str) -> Result<(), EditRefused> {
    let place = format!("{}:{}", node.at.file.display(), node.at.line);
    match (&node.kind, rest) {
        (NodeKind::List(_), _) => Err(edit_by_hand(&format!(
            "`{name}` leads into the list at {place}"
        ))),
        (NodeKind::Map(_), []) => Err(edit_by_hand(&format!("`{name}` is the map at {place}"))),
        (NodeKind::Bool { .. } | NodeKind::Number { .. } | NodeKind::Text(_), [_, ..]) => Err(
            edit_by_hand(&format!("`{name}` leads below the scalar at {place}")),
        ),
        (NodeKind::Null, [_, ..]) => Err(edit_by_hand(&format!(
            "`{name}` leads below the null at {place}"
        ))),
        _ => Ok(()),
    }
}

fn replaced(text: &str, span: &ValueSpan, encoded: &str) -> Option<String> {
    let old = text.get(span.bytes.clone())?;
    let single = matches!(span.shape, Shape::Scalar) && !old.is_empty() && !old.contains('\n');
    let block_text = old.starts_with(['|', '>']);
    (single && !block_text).then(|| {
        let (head, tail) = (&text[..span.bytes.start], &text[span.bytes.end..]);
        format!("{head}{encoded}{tail}")
    })
}

/// Adds the missing keys as new lines before their first sibling, or at the end of the file.
fn added(
    text: &str,
    map: &ValueSpan,
    is_root: bool,
    keys: &[&str],
    encoded: &str,
) -> Option<String> {
    let (at, indent) = match map.fields().first() {
        Some(first) => {
            let indent = lines::indent_of(text, first.start)?;
            (lines::start_of(text, first.start), indent)
        }
        None if is_root => (text.len(), 0),
        None => return None,
    };
    let numbered = keys.iter().zip(0..);
    let block: String = numbered
        .map(|(key, depth)| {
            let key = if is_plain(key) {
                (*key).to_owned()
            } else {
                Value::from(*key).to_string()
            };
            let spaces = " ".repeat(indent + 2 * depth);
            if depth + 1 == keys.len() {
                format!("{spaces}{key}: {encoded}\n")
            } else {
                format!("{spaces}{key}:\n")
            }
        })
        .collect();
    if is_root {
        return Some(lines::appended(text, &block));
    }
    Some(format!("{}{block}{}", &text[..at], &text[at..]))
}

/// Applies the change to the expected tree.
fn put(tree: &mut Value, keys: &[String], rest: &[&str], value: Value) {
    let path = keys.iter().map(String::as_str).chain(rest.iter().copied());
    let mut at = tree;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[key];
    }
    *at = value;
}
