//! Masks the secrets of a configuration for display.
//!
//! A value is masked if its key names a secret (`names`) or if its text looks like one (`forms`). Neither is complete, so the
//! caller also masks every substituted variable.

mod forms;
mod names;

use serde_json::{Map, Value};

use names::Secrecy;

/// The replacement for a secret on the command line.
pub const MASK: &str = "[redacted]";

/// Masks every secret, by the name of its key or by its own form.
pub fn masked(value: &Value, mask: &str) -> Value {
    match value {
        Value::Object(entries) => {
            let is_named_secret = names_secret(entries);
            let entries = entries.iter().map(|(key, value)| {
                let hides = match names::secrecy(key) {
                    Secrecy::Secret => true,
                    // A boolean, such as `require_api_auth`, reveals nothing.
                    Secrecy::Likely => !value.is_boolean(),
                    Secrecy::None => is_named_secret && CARRIERS.contains(&key.as_str()),
                };
                let show = if hides { hidden } else { masked };
                (key.clone(), show(value, mask))
            });
            Value::Object(entries.collect())
        }
        Value::Array(items) => {
            let mut is_value_of_flag = false;
            let items = items.iter().map(|item| {
                let show = if is_value_of_flag { hidden } else { masked };
                is_value_of_flag = item.as_str().is_some_and(forms::is_secret_flag);
                show(item, mask)
            });
            items.collect()
        }
        Value::String(text) => Value::String(forms::masked(text, mask)),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The keys that name an entry of a list such as `[{name: DB_PASS, value: …}]`, and those that then hold its value.
const NAMERS: &[&str] = &["name", "header", "field", "variable", "env", "param"];
const CARRIERS: &[&str] = &["value", "values", "default", "content", "data", "text"];

fn names_secret(entries: &Map<String, Value>) -> bool {
    let named = NAMERS.iter().filter_map(|key| entries.get(*key)?.as_str());
    named.into_iter().any(names::is_secret)
}

/// The keys that may be shown of an entry in a list such as `tokens`.
const SHOWN: &[&str] = &[
    "name",
    "scopes",
    "scopes_file",
    "scopes_hash",
    "description",
    "created_at",
];

/// Masks all scalars below, except those that identify an entry of a list.
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
        let is_shown = SHOWN.contains(&key.as_str());
        let show = if is_shown { masked } else { hidden };
        (key.clone(), show(value, mask))
    });
    Value::Object(entries.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literals_are_hidden_by_their_keys_and_by_their_forms() {
        let config = json!({
            "authorization": "abc", "dsn": "db", "passphrase": "open", "passwd": "p", "smtp_pass": "p", "smtpPass": "p",
            "credentials": {"user": "ada", "list": [1, "x"]}, "pat": "x", "pin": 1234, "cookie": "a=b", "private": "x",
            "Session-Id": "s", "basicAuth": "u:p", "PWD": "x",
            "url": "https://ada:hunter2@example.com/x?lang=en",
            "headers": [{"name": "X-Auth", "value": "v"}, {"name": "Accept", "value": "*/*"}, "Authorization: Bearer v"],
            "args": ["--password", "hunter2", "--verbose", "2", "--api-token=abc"],
            "require_api_auth": true, "author": "ada", "path": "/x", "pattern": "a*", "pinned": 3, "spin": 1, "retries": 3,
        });
        let shown = json!({
            "authorization": "#", "dsn": "#", "passphrase": "#", "passwd": "#", "smtp_pass": "#", "smtpPass": "#",
            "credentials": {"user": "#", "list": ["#", "#"]}, "pat": "#", "pin": "#", "cookie": "#", "private": "#",
            "Session-Id": "#", "basicAuth": "#", "PWD": "#",
            "url": "https://ada:#@example.com/x?lang=en",
            "headers": [{"name": "X-Auth", "value": "#"}, {"name": "Accept", "value": "*/*"}, "Authorization: #"],
            "args": ["--password", "#", "--verbose", "2", "--api-token=#"],
            "require_api_auth": true, "author": "ada", "path": "/x", "pattern": "a*", "pinned": 3, "spin": 1, "retries": 3,
        });
        assert_eq!(masked(&config, "#"), shown);
    }

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
