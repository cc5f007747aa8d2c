//! Formats a condition for display.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::condition::{Condition, Test};

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Test(path, test) => write!(f, "{path} {test}"),
            Self::All(parts) => joined(f, parts, " and "),
            Self::Any(parts) => joined(f, parts, " or "),
            Self::Not(part) => write!(f, "not ({part})"),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Condition], word: &str) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            f.write_str(word)?;
        }
        match part {
            Condition::All(_) | Condition::Any(_) => write!(f, "({part})")?,
            Condition::Test(..) | Condition::Not(_) => write!(f, "{part}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, value) = match self {
            Self::Exists => return f.write_str("exists"),
            Self::Equals(value) => ("eq", value.clone()),
            Self::Differs(value) => ("neq", value.clone()),
            Self::OneOf(values) => ("in", Value::Array(values.clone())),
            Self::Ordered(number, orders) => {
                let op = match *orders {
                    [Ordering::Greater] => "gt",
                    [Ordering::Greater, _] => "gte",
                    [Ordering::Less] => "lt",
                    _ => "lte",
                };
                (op, Value::Number(number.clone()))
            }
            Self::Contains(part) => ("contains", part.as_str().into()),
            Self::StartsWith(part) => ("startswith", part.as_str().into()),
            Self::EndsWith(part) => ("endswith", part.as_str().into()),
            // Without the anchors that make it match the whole string.
            Self::Matches(regex) => {
                let whole = regex.as_str();
                let inner = whole.strip_prefix(r"\A(?:");
                let inner = inner.and_then(|inner| inner.strip_suffix(r")\z"));
                ("regex", inner.unwrap_or(whole).into())
            }
        };
        write!(f, "{op} {value}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_reads_as_it_was_written() {
        let condition = json!({"all": [
            {"path": "payload.n", "op": "gte", "value": 3},
            {"any": [
                {"path": "payload.kind", "op": "in", "value": ["a", "b"]},
                {"not": {"path": "context.user", "op": "exists"}},
            ]},
            {"path": "payload.name", "op": "regex", "value": "a.c"},
        ]});
        let condition = Condition::from_json(&condition).unwrap();
        assert_eq!(
            condition.to_string(),
            r#"payload.n gte 3 and (payload.kind in ["a","b"] or not (context.user exists)) and payload.name regex "a.c""#
        );
    }
}
