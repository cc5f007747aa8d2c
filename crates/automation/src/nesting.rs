//! The maximum nesting of a value that becomes part of a job, a state or a context.
//!
//! JSON parsers have a depth limit, and stored values are wrapped a few levels deeper and may grow with each step. The bound here
//! keeps stored values readable.

use serde_json::Value;

pub const LEVELS_MAX: usize = 64;

pub fn is_too_deep(value: &Value) -> bool {
    is_deeper(value, LEVELS_MAX)
}

pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else {
        return value.is_array() || value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, below)),
        Value::Object(members) => members.values().any(|member| is_deeper(member, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_counted_by_lists_and_objects() {
        let nested = |levels| (0..levels).fold(Value::Null, |inner, _| Value::from(vec![inner]));
        assert!(!is_too_deep(&nested(LEVELS_MAX)));
        assert!(is_too_deep(&nested(LEVELS_MAX + 1)));
        assert!(!is_too_deep(&Value::Null));
    }
}
