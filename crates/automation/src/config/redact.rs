//! A configuration for people to look at, without its secrets.

use consign_kernel::plant::{self, Plant};
use serde_json::{Map, Value};

/// What the command line shows in place of a secret.
pub const MASK: &str = "[redacted]";

const SENSITIVE: &[&str] = &["secret", "key", "token", "password"];

/// The value with everything under a telling key replaced.
pub fn masked(value: &Value, mask: &str) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let show = if is_sensitive(key) { hidden } else { masked };
                (key.clone(), show(value, mask))
            });
            Value::Object(entries.collect())
        }
        Value::Array(items) => items.iter().map(|item| masked(item, mask)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_sensitive(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    if plant::on(Plant::ExactRedaction) {
        return SENSITIVE.contains(&key.as_str());
    }
    SENSITIVE.iter().any(|word| key.contains(word))
}

/// What may be seen of an entry in a list such as `tokens`.
const TOLD: &[&str] = &[
    "name",
    "scopes",
    "scopes_file",
    "scopes_hash",
    "description",
    "created_at",
];

/// Hides all scalars below, except what says which entry of a list it is.
fn hidden(value: &Value, mask: &str) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (key.clone(), hidden(value, mask)));
            Value::Object(entries.collect())
        }
        Value::Array(items) => {
            let items = items.iter().map(|item| match item.as_object() {
                Some(entries) => named(entries, mask),
                None => hidden(item, mask),
            });
            items.collect()
        }
        Value::Null => Value::Null,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::String(mask.to_owned()),
    }
}

fn named(entries: &Map<String, Value>, mask: &str) -> Value {
    let entries = entries.iter().map(|(key, value)| {
        let is_told = TOLD.contains(&key.as_str());
        let show = if is_told { masked } else { hidden };
        (key.clone(), show(value, mask))
    });
    Value::Object(entries.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_under_telling_keys_are_replaced_du_025() {
        consign_testkit::plants::from_environment();
        let config = json!({
            "tokens": [{"name": "n", "key": "v1", "scopes": ["*"]}],
            "api": {"auth": {"tokens": [{"token": 12, "scopes": []}]}},
            "plugins": {"p": {"config": {"API_KEY": "v2", "url": "u", "passwords": ["v3"],
                "keys": [{"name": "n", "value": "v5", "scopes": {"inner": 1}}]}}},
            "secrets": {"a": {"b": "v4"}},
        });
        let shown = json!({
            "tokens": [{"name": "n", "key": "#", "scopes": ["*"]}],
            "api": {"auth": {"tokens": [{"token": "#", "scopes": []}]}},
            "plugins": {"p": {"config": {"API_KEY": "#", "url": "u", "passwords": ["#"],
                "keys": [{"name": "n", "value": "#", "scopes": {"inner": 1}}]}}},
            "secrets": {"a": {"b": "#"}},
        });
        assert_eq!(masked(&config, "#"), shown);
    }
}
