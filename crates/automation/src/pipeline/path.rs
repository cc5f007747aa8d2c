//! Dotted paths into the values of a pipeline.

use std::fmt;

use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    Payload,
    Context,
    Config,
}

impl Root {
    fn as_str(self) -> &'static str {
        match self {
            Self::Payload => "payload",
            Self::Context => "context",
            Self::Config => "config",
        }
    }
}

/// Such as `payload.user.name`; a root alone means the whole value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValuePath {
    pub root: Root,
    keys: Vec<String>,
}

impl ValuePath {
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.');
        let root = parts.next()?;
        let root = [Root::Payload, Root::Context, Root::Config]
            .into_iter()
            .find(|known| known.as_str() == root)?;
        let keys: Vec<String> = parts.map(str::to_owned).collect();
        let unfit = |key: &String| key.is_empty() || key.contains(['{', '}', ' ']);
        (!keys.iter().any(unfit)).then_some(Self { root, keys })
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root.as_str())?;
        self.keys.iter().try_for_each(|key| write!(f, ".{key}"))
    }
}

/// The values that paths refer to.
#[derive(Clone, Copy, Debug)]
pub struct PathScope<'a> {
    pub payload: &'a Value,
    pub context: &'a Map<String, Value>,
    pub config: &'a Map<String, Value>,
}

impl PathScope<'_> {
    /// `None` if the path does not exist; null is a value.
    pub fn get(&self, path: &ValuePath) -> Option<Value> {
        let map = match path.root {
            Root::Payload => return walk(self.payload, &path.keys).cloned(),
            Root::Context => self.context,
            Root::Config => self.config,
        };
        match path.keys.split_first() {
            None => Some(Value::Object(map.clone())),
            Some((first, rest)) => walk(map.get(first)?, rest).cloned(),
        }
    }
}

fn walk<'a>(value: &'a Value, keys: &[String]) -> Option<&'a Value> {
    keys.iter()
        .try_fold(value, |value, key| value.as_object()?.get(key))
}
