//! Parses YAML into located nodes, within limits that no hand-written configuration reaches.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Options, Spanned};

use super::node::{ConfigNode, MapEntry, NodeKind};
use super::problem::SourcePosition;

/// Larger than any configuration, and small enough to hold in memory a few times.
pub(super) const FILE_BYTES_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 48;
const NODES_MAX: usize = 50_000;
const ALIASES_MAX: usize = 500;
/// The maximum number of nodes that all aliases may repeat.
const REPLAYED_EVENTS_MAX: usize = 50_000;

/// Not YAML, or too large. The reason may quote the file, so it must not be shown for text that contains secrets.
#[derive(Debug)]
pub(super) struct YamlError {
    pub line: u32,
    pub reason: String,
}

pub(super) fn parse(file: &Arc<Path>, text: &str) -> Result<ConfigNode, YamlError> {
    let raw: Spanned<RawNode> = match serde_saphyr::from_str_with_options(text, limits()) {
        Ok(raw) => raw,
        Err(error) => {
            let line = error.location().map_or(0, |found| line_of(&found));
            let reason = error.without_snippet().to_string();
            return Err(YamlError { line, reason });
        }
    };
    Ok(text_with_spans(raw, file, text))
}

/// The position of a value in its text.
#[derive(Debug)]
pub(super) struct ValueSpan {
    pub bytes: Range<usize>,
    pub shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    Null,
    Scalar,
    List(Vec<ValueSpan>),
    Map(Vec<FieldSpan>),
}

#[derive(Debug)]
pub(super) struct FieldSpan {
    pub key: String,
    /// The start of the key.
    pub start: usize,
    pub value: ValueSpan,
}

impl ValueSpan {
    pub(super) fn field(&self, key: &str) -> Option<&FieldSpan> {
        self.fields().iter().find(|field| field.key == key)
    }

    pub(super) fn fields(&self) -> &[FieldSpan] {
        match &self.shape {
            Shape::Map(fields) => fields,
            Shape::Null | Shape::Scalar | Shape::List(_) => &[],
        }
    }

    pub(super) fn items(&self) -> &[Self] {
        match &self.shape {
            Shape::List(items) => items,
            Shape::Null | Shape::Scalar | Shape::Map(_) => &[],
        }
    }
}

/// The positions of all values; `None` if a position is unknown.
pub(super) fn spans(text: &str) -> Option<ValueSpan> {
    let raw: Spanned<RawNode> = serde_saphyr::from_str_with_options(text, limits()).ok()?;
    span(raw, text)
}

fn span(raw: Spanned<RawNode>, text: &str) -> Option<ValueSpan> {
    let bytes = bytes_of(text, &raw.referenced)?;
    let shape = match raw.value {
        RawNode::Null => Shape::Null,
        RawNode::Bool(_) | RawNode::Number(_) | RawNode::Text(_) => Shape::Scalar,
        RawNode::List(items) => {
            let items = items.into_iter().map(|item| span(item, text));
            Shape::List(items.collect::<Option<_>>()?)
        }
        RawNode::Map(entries) => {
            let fields = entries.into_iter().map(|(key, value)| {
                Some(FieldSpan {
                    start: bytes_of(text, &key.referenced)?.start,
                    key: key.value,
                    value: span(value, text)?,
                })
            });
            Shape::Map(fields.collect::<Option<_>>()?)
        }
    };
    Some(ValueSpan { bytes, shape })
}

fn bytes_of(text: &str, location: &Location) -> Option<Range<usize>> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    let written = text.get(start..start.checked_add(length)?)?;
    Some(start..start + written.trim_end().len())
}

/// For files of a fixed shape, with the same limits.
pub(super) fn parse_as<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, limits()).map_err(|error| error.to_string())
}

fn limits() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_aliases: ALIASES_MAX,
            max_anchors: ALIASES_MAX,
            max_recorded_anchor_events: REPLAYED_EVENTS_MAX,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: REPLAYED_EVENTS_MAX,
            max_replay_stack_depth: 16,
        },
        emit_comments: false,
        with_snippet: false,
        // As other readers of such files: `yes` is text unless a key expects a boolean, and `0755` is octal.
        strict_booleans: true,
        legacy_octal_numbers: true,
    }
}

enum RawNode {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
}

fn text_with_spans(raw: Spanned<RawNode>, file: &Arc<Path>, text: &str) -> ConfigNode {
    let at = place(file, &raw.referenced);
    let written = |fallback: String| written_at(text, &raw.defined).unwrap_or(fallback);
    let kind = match raw.value {
        RawNode::Null => NodeKind::Null,
        RawNode::Bool(value) => NodeKind::Bool {
            value,
            text: written(value.to_string()),
        },
        RawNode::Number(value) => NodeKind::Number {
            text: written(value.to_string()),
            value,
        },
        RawNode::Text(text) => NodeKind::Text(text),
        RawNode::List(items) => {
            let items = items.into_iter();
            NodeKind::List(
                items
                    .map(|item| text_with_spans(item, file, text))
                    .collect(),
            )
        }
        RawNode::Map(entries) => {
            let entries = entries.into_iter().map(|(key, value)| MapEntry {
                key_at: place(file, &key.referenced),
                key: key.value,
                value: text_with_spans(value, file, text),
            });
            NodeKind::Map(entries.collect())
        }
    };
    ConfigNode {
        at,
        kind,
        is_filled: false,
    }
}

fn place(file: &Arc<Path>, location: &Location) -> SourcePosition {
    SourcePosition {
        file: Arc::clone(file),
        line: line_of(location),
    }
}

fn line_of(location: &Location) -> u32 {
    u32::try_from(location.line()).unwrap_or(u32::MAX)
}

fn written_at(text: &str, location: &Location) -> Option<String> {
    let written = text.get(bytes_of(text, location)?)?.trim_start();
    (!written.is_empty()).then(|| written.to_owned())
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = RawNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Null)
    }

    fn visit_none<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
        RawNode::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawNode, E> {
        Ok(RawNode::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawNode, E> {
        Ok(RawNode::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawNode, E> {
        Ok(RawNode::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawNode, E> {
        // JSON has no infinity; such a value stays text.
        let number = Number::from_f64(value);
        Ok(number.map_or_else(|| RawNode::Text(value.to_string()), RawNode::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawNode, E> {
        Ok(RawNode::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<RawNode, E> {
        Ok(RawNode::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawNode, A::Error> {
        let mut found = Vec::new();
        while let Some(item) = items.next_element()? {
            found.push(item);
        }
        Ok(RawNode::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawNode, A::Error> {
        let mut found = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            found.push(entry);
        }
        Ok(RawNode::Map(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConfigNode, YamlError> {
        parse(&Arc::from(Path::new("a.yaml")), text)
    }

    #[test]
    fn every_value_knows_its_line_and_scalars_keep_their_text() {
        let tree = read("a: 1\nb:\n  - x\n  - {c: 0042, d: 1e3}\ne: true\nf: yes\ng:\nh: ~\ni: 2026-02-25T00:00:00Z\n404: k\nj: 1.50\nk: '007'\n").unwrap();
        let json = tree.json();
        assert_eq!(json["a"], 1);
        assert_eq!(json["e"], true);
        assert_eq!(json["g"], serde_json::Value::Null);
        assert_eq!(json["h"], serde_json::Value::Null);
        assert_eq!(json["i"], "2026-02-25T00:00:00Z");
        assert_eq!(json["404"], "k");
        let NodeKind::List(items) = &tree.get("b").unwrap().kind else {
            panic!("`b` is a list");
        };
        let inner = |key: &str| items[1].get(key).unwrap();
        assert_eq!(inner("c").text(), Some("0042"));
        assert_eq!(inner("d").text(), Some("1e3"));
        assert_eq!(inner("c").at.line, 4);
        assert_eq!(tree.get("e").unwrap().at.line, 5);
        assert_eq!(tree.entries()[1].key_at.line, 2);
        assert_eq!(tree.get("j").unwrap().text(), Some("1.50"));
        assert_eq!(tree.get("k").unwrap().text(), Some("007"));
        assert_eq!(json["f"], "yes");
        assert_eq!(json["b"][1]["c"], 34);
    }

    #[test]
    fn aliases_and_merge_keys_work() {
        let tree = read("a: &x 0042\nb: *x\n").unwrap();
        assert_eq!(tree.get("a").unwrap().text(), Some("0042"));
        assert_eq!(tree.get("b").unwrap().text(), Some("0042"));
        assert_eq!(tree.get("b").unwrap().at.line, 2);
        let tree = read("base: &b {x: 1, y: 00}\nuse:\n  <<: *b\n  z: *b\n").unwrap();
        assert_eq!(tree.json()["use"]["x"], 1);
        assert_eq!(tree.json()["use"]["z"]["x"], 1);
        assert_eq!(
            tree.get("use").unwrap().get("y").unwrap().text(),
            Some("00")
        );
    }

    #[test]
    fn bombs_and_broken_files_are_refused_with_a_line() {
        let broken = read("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(broken.line >= 2, "{broken:?}");
        let twice = read("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!(twice.line, 3, "{twice:?}");
        let mut bomb = "l0: &l0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let alias = format!("*l{}", level - 1);
            let row = vec![alias; 9].join(", ");
            bomb = format!("{bomb}l{level}: &l{level} [{row}]\n");
        }
        assert!(read(&bomb).is_err());
        assert!(read(&format!("{}{}", "[".repeat(60), "]".repeat(60))).is_err());
        assert!(read(&"- x\n".repeat(NODES_MAX + 1)).is_err());
        assert!(read("a: 1\n---\nb: 2\n").is_err());
    }
}
