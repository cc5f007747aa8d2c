//! Compares a JSON value with a schema of a document: the keywords that the descriptions use.

use serde_json::Value;

/// The value, or the component that it refers to.
pub(crate) fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

/// The first difference between the value and the schema.
pub(crate) fn mismatch(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let schema = resolved(document, schema);
    if let Some(variants) = schema["oneOf"].as_array() {
        let matches = variants
            .iter()
            .filter(|variant| mismatch(document, variant, value).is_none());
        return (matches.count() != 1).then(|| format!("{value} matches not one variant"));
    }
    if !is_of_type(&schema["type"], value) {
        return Some(format!("{value} is not {}", schema["type"]));
    }
    let listed = schema["enum"].as_array();
    if listed.is_some_and(|listed| !listed.contains(value)) {
        return Some(format!("{value} is not listed in {}", schema["enum"]));
    }
    if !schema["const"].is_null() && schema["const"] != *value {
        return Some(format!("{value} is not {}", schema["const"]));
    }
    if let Some(items) = value.as_array() {
        return items
            .iter()
            .find_map(|item| mismatch(document, &schema["items"], item));
    }
    let members = value.as_object()?;
    let required = schema["required"].as_array().into_iter().flatten();
    let mut required = required.filter_map(Value::as_str);
    if let Some(missing) = required.find(|name| !members.contains_key(*name)) {
        return Some(format!("{missing} is missing"));
    }
    members.iter().find_map(|(name, member)| {
        let known = &schema["properties"][name];
        let closed = schema["additionalProperties"] == Value::Bool(false);
        if known.is_null() && closed {
            return Some(format!("{name} is not described"));
        }
        mismatch(document, known, member).map(|why| format!("{name}: {why}"))
    })
}

fn is_of_type(types: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    match types {
        Value::Null => true,
        Value::Array(types) => types.iter().any(is),
        only @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            is(only)
        }
    }
}
