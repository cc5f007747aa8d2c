//! Selects one part of a configuration by path or by entity name.

use serde_json::Value;

use super::model::Config;
use super::redact::MASK;

/// Entities with names: kind, path, and the keys that hold the name.
const ENTITIES: [(&str, &[&str], &[&str]); 3] = [
    ("plugin", &["plugins"], &[]),
    ("pipeline", &["pipelines"], &["name"]),
    ("webhook", &["webhooks", "endpoints"], &["name", "path"]),
];

/// The value at `service.log_level`, `routes.0.to`, `plugin:mail` or `pipeline:*`; secrets are masked.
pub fn get(config: &Config, wanted: &str) -> Option<Value> {
    pick(&config.shown(MASK), wanted)
}

/// Selects from a configuration that is already masked.
pub fn pick(shown: &Value, wanted: &str) -> Option<Value> {
    let entity = ENTITIES.iter().find_map(|(kind, place, names)| {
        let name = wanted.strip_prefix(kind)?.strip_prefix(':')?;
        Some((name, place, names))
    });
    let Some((name, place, names)) = entity else {
        return at(shown, &segments(wanted)).cloned();
    };
    let things = at(shown, place)?;
    match things {
        things if name == "*" => Some(things.clone()),
        Value::Object(_) => at(things, &segments(name)).cloned(),
        Value::Array(items) => {
            let named = |item: &&Value| names.iter().any(|key| item[*key] == name);
            items.iter().find(named).cloned()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// `a.b[0]` and `a.b.0` are the same.
fn segments(path: &str) -> Vec<&str> {
    let parts = path
        .split(['.', '['])
        .map(|part| part.trim_end_matches(']'));
    parts.filter(|part| !part.is_empty()).collect()
}

fn at<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    let [first, rest @ ..] = path else {
        return Some(value);
    };
    match value {
        Value::Array(items) => at(items.get(first.parse::<usize>().ok()?)?, rest),
        // A key may contain dots.
        Value::Object(entries) => (1..=path.len()).find_map(|length| {
            let (key, rest) = path.split_at(length);
            at(entries.get(&key.join("."))?, rest)
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}
