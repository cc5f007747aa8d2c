//! The `with` of a step: payload keys rendered from templates just before the plugin runs.
//!
//! All templates read one snapshot and never each other, so their order is irrelevant. A bad template fails its job, not the
//! load.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::{PathScope, Root, ValuePath};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("with must be a mapping of payload keys to templates")]
    Shape,
    #[error(
        "with.{0} must be a text or a plain value; write lists and mappings as a reference, such as \"{{payload.items}}\""
    )]
    Nested(String),
    #[error("with.{0} has a brace without its partner; write references as {{payload.name}}")]
    Brace(String),
    #[error("with.{key} refers to `{reference}`; write {{payload.name}} or {{context.name}}")]
    Reference { key: String, reference: String },
    #[error("with.{key} refers to `{path}`, which does not exist")]
    Missing { key: String, path: String },
    #[error("with needs a payload that is an object")]
    Payload,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct With(BTreeMap<String, Value>);

impl With {
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let map = value.as_object().ok_or(Error::Shape)?;
        let nested = |(_, value): &(&String, &Value)| value.is_array() || value.is_object();
        if let Some((key, _)) = map.iter().find(nested) {
            return Err(Error::Nested(key.clone()));
        }
        Ok(Self(map.clone().into_iter().collect()))
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The text of this key, if it is a text without references.
    pub fn literal(&self, key: &str) -> Option<&str> {
        let text = self.0.get(key)?.as_str()?;
        (!text.contains(['{', '}'])).then_some(text)
    }

    /// The payload with the templates' keys added or replaced.
    pub fn apply(&self, payload: &Value, context: &Map<String, Value>) -> Result<Value, Error> {
        if self.0.is_empty() {
            return Ok(payload.clone());
        }
        let mut made = match payload {
            Value::Object(payload) => payload.clone(),
            Value::Null => Map::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(Error::Payload);
            }
        };
        let scope = PathScope {
            payload,
            context,
            config: &Map::new(),
        };
        for (key, template) in &self.0 {
            let value = match template.as_str() {
                Some(text) => render(key, text, &scope)?,
                None => template.clone(),
            };
            made.insert(key.clone(), value);
        }
        Ok(Value::Object(made))
    }
}

/// The payload of an event for `handle`: context entries fill keys that the payload lacks.
pub fn merge_context(payload: Value, context: &Map<String, Value>) -> Value {
    let Value::Object(mut payload) = payload else {
        return payload;
    };
    for (key, value) in context {
        payload.entry(key).or_insert_with(|| value.clone());
    }
    Value::Object(payload)
}

fn render(key: &str, text: &str, scope: &PathScope<'_>) -> Result<Value, Error> {
    let brace = || Error::Brace(key.to_owned());
    let mut made = String::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let (before, reference) = rest.split_at(open);
        let reference = reference.strip_prefix('{').ok_or_else(brace)?;
        let close = reference.find(['{', '}']).ok_or_else(brace)?;
        let (reference, after) = reference.split_at(close);
        rest = after.strip_prefix('}').ok_or_else(brace)?;
        let value = look_up(key, reference, scope)?;
        if reference.len() + 2 == text.len() {
            // A template that is only a reference keeps the type of the value.
            return Ok(value);
        }
        made.push_str(before);
        match &value {
            Value::Null => {}
            Value::String(text) => made.push_str(text),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                made.push_str(&value.to_string());
            }
        }
    }
    made.push_str(rest);
    Ok(Value::String(made))
}

fn look_up(key: &str, reference: &str, scope: &PathScope<'_>) -> Result<Value, Error> {
    let path = ValuePath::parse(reference).filter(|path| path.root != Root::Config);
    let path = path.ok_or_else(|| Error::Reference {
        key: key.to_owned(),
        reference: reference.to_owned(),
    })?;
    scope.get(&path).ok_or_else(|| Error::Missing {
        key: key.to_owned(),
        path: path.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn apply(with: &Value, payload: &Value) -> Result<Value, Error> {
        let context = json!({"user": "ann", "deep": {"n": 7}});
        With::from_json(with)?.apply(payload, context.as_object().unwrap())
    }

    #[test]
    fn lone_reference_keeps_its_type_and_text_around_it_makes_text_du_092() {
        let payload = json!({"a": {"b": [1, 2]}, "n": 3, "none": null, "keep": true});
        let with = json!({
            "list": "{payload.a.b}", "n": "{payload.n}", "mixed": "{context.user}: {payload.n}/{payload.none}/{payload.a.b}",
            "keep": "{context.deep.n}", "plain": "text", "number": 5, "none": "{payload.none}",
        });
        assert_eq!(
            apply(&with, &payload).unwrap(),
            json!({
                "a": {"b": [1, 2]}, "n": 3, "none": null, "keep": 7, "list": [1, 2], "mixed": "ann: 3//[1,2]",
                "plain": "text", "number": 5,
            })
        );
    }

    #[test]
    fn entries_see_the_snapshot_and_not_each_other_du_092() {
        let swapped = apply(
            &json!({"a": "{payload.b}", "b": "{payload.a}"}),
            &json!({"a": 1, "b": 2}),
        );
        assert_eq!(swapped, Ok(json!({"a": 2, "b": 1})));
    }

    #[test]
    fn missing_paths_and_stray_braces_fail_du_092() {
        let payload = json!({"a": 1});
        let missing = apply(&json!({"x": "{payload.b}"}), &payload).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "with.x refers to `payload.b`, which does not exist"
        );
        for bad in [
            "{",
            "}",
            "a}",
            "{payload.a",
            "{payload.{a}}",
            "{{payload.a}}",
            "{}",
            "{secret.a}",
            "{config.a}",
            "{payload.}",
            "{payload.a}}",
        ] {
            assert!(apply(&json!({"x": bad}), &payload).is_err(), "{bad}");
        }
        assert_eq!(apply(&json!({"x": "1"}), &json!([1])), Err(Error::Payload));
        assert_eq!(
            apply(&json!({"x": [1]}), &payload),
            Err(Error::Nested("x".to_owned()))
        );
    }

    #[test]
    fn context_fills_only_what_the_payload_lacks_du_094() {
        let context = json!({"user": "ann", "a": 0});
        let merged = merge_context(json!({"a": 1}), context.as_object().unwrap());
        assert_eq!(merged, json!({"a": 1, "user": "ann"}));
    }

    proptest! {
        #[test]
        fn text_without_braces_stays_as_it_is_and_none_panics_du_092(text in "[a-z{}. ]{0,20}") {
            let found = apply(&json!({"x": text}), &json!({}));
            if !text.contains(['{', '}']) {
                prop_assert_eq!(found, Ok(json!({"x": text})));
            }
        }
    }
}
