//! A configuration for people to look at, without its secrets.

use serde_json::Value;

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
    SENSITIVE.iter().any(|word| key.contains(word))
}

/// Hides all scalars below, except in a list of maps such as `tokens`, whose own keys tell.
fn hidden(value: &Value, mask: &str) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (key.clone(), hidden(value, mask)));
            Value::Object(entries.collect())
        }
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let show = if item.is_object() { masked } else { hidden };
                show(item, mask)
            })
            .collect(),
        Value::Null => Value::Null,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Value::String(mask.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_under_telling_keys_are_replaced_du_025() {
        let config = json!({
            "tokens": [{"name": "n", "key": "v1", "scopes": ["*"]}],
            "api": {"auth": {"tokens": [{"token": 12, "scopes": []}]}},
            "plugins": {"p": {"config": {"API_KEY": "v2", "url": "u", "passwords": ["v3"]}}},
            "secrets": {"a": {"b": "v4"}},
        });
        let shown = json!({
            "tokens": [{"name": "n", "key": "#", "scopes": ["*"]}],
            "api": {"auth": {"tokens": [{"token": "#", "scopes": []}]}},
            "plugins": {"p": {"config": {"API_KEY": "#", "url": "u", "passwords": ["#"]}}},
            "secrets": {"a": {"b": "#"}},
        });
        assert_eq!(masked(&config, "#"), shown);
    }
}
