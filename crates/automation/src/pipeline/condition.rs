//! Conditions: the `if` of pipelines and steps.
//!
//! Types are strict: nothing is converted, and a value of the wrong type makes the test false. All errors of a condition are
//! found when it is parsed, so evaluation cannot fail.

use std::cmp::Ordering;

use regex_lite::{Regex, RegexBuilder};
use serde_json::{Map, Number, Value};

use super::path::{PathScope, Root, ValuePath};

const DEPTH_MAX: usize = 16;
const NODES_MAX: usize = 256;
const PATTERN_BYTES_MAX: usize = 1024;
const PROGRAM_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a condition must be exactly one of {{path, op, value}}, all, any or not")]
    Shape,
    #[error("`{0}` must be a list of at least one condition")]
    List(&'static str),
    #[error("path `{0}` is unknown; start it with payload., context. or config.")]
    ValuePath(String),
    #[error(
        "operator `{0}` is unknown; write exists, eq, neq, in, gt, gte, lt, lte, contains, startswith, endswith or regex"
    )]
    Operator(String),
    #[error("operator {op} needs a value that is {expected}")]
    Value { op: String, expected: &'static str },
    #[error("regex `{0}` is invalid or too large; write a shorter or simpler pattern")]
    Pattern(String),
    #[error(
        "a condition may be nested {DEPTH_MAX} deep and have {NODES_MAX} parts; split it over several steps"
    )]
    TooBig,
}

#[derive(Clone, Debug)]
pub enum Condition {
    Test(ValuePath, Test),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
}

#[derive(Clone, Debug)]
pub enum Test {
    Exists,
    Equals(Value),
    Differs(Value),
    OneOf(Vec<Value>),
    /// The order of the value and the given number is one of these.
    Ordered(Number, &'static [Ordering]),
    Contains(String),
    StartsWith(String),
    EndsWith(String),
    Matches(Regex),
}

impl Condition {
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let mut nodes = 0;
        Self::parse(value, 1, &mut nodes)
    }

    pub fn holds(&self, scope: &PathScope<'_>) -> bool {
        match self {
            Self::Test(path, test) => test.holds(scope.get(path)),
            Self::All(parts) => parts.iter().all(|part| part.holds(scope)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(scope)),
            Self::Not(part) => !part.holds(scope),
        }
    }

    /// Whether any test reads a path below this root.
    pub fn reads(&self, root: Root) -> bool {
        match self {
            Self::Test(path, _) => path.root == root,
            Self::All(parts) | Self::Any(parts) => parts.iter().any(|part| part.reads(root)),
            Self::Not(part) => part.reads(root),
        }
    }

    fn parse(value: &Value, depth: usize, nodes: &mut usize) -> Result<Self, Error> {
        *nodes += 1;
        if depth > DEPTH_MAX || *nodes > NODES_MAX {
            return Err(Error::TooBig);
        }
        let map = value.as_object().ok_or(Error::Shape)?;
        if map.contains_key("path") {
            return Self::parse_test(map);
        }
        let mut entries = map.iter();
        let (Some((key, inner)), None) = (entries.next(), entries.next()) else {
            return Err(Error::Shape);
        };
        let mut list = |key| -> Result<Vec<Self>, Error> {
            let parts = inner.as_array().filter(|parts| !parts.is_empty());
            let parts = parts.ok_or(Error::List(key))?.iter();
            parts
                .map(|part| Self::parse(part, depth + 1, nodes))
                .collect()
        };
        match key.as_str() {
            "all" => Ok(Self::All(list("all")?)),
            "any" => Ok(Self::Any(list("any")?)),
            "not" => Ok(Self::Not(Box::new(Self::parse(inner, depth + 1, nodes)?))),
            _ => Err(Error::Shape),
        }
    }

    fn parse_test(map: &Map<String, Value>) -> Result<Self, Error> {
        if map
            .keys()
            .any(|key| !["path", "op", "value"].contains(&key.as_str()))
        {
            return Err(Error::Shape);
        }
        let path = map["path"].as_str().ok_or(Error::Shape)?;
        let path = ValuePath::parse(path).ok_or_else(|| Error::ValuePath(path.to_owned()))?;
        let op = map.get("op").and_then(Value::as_str).ok_or(Error::Shape)?;
        Ok(Self::Test(path, Test::parse(op, map.get("value"))?))
    }
}

impl Test {
    fn parse(op: &str, value: Option<&Value>) -> Result<Self, Error> {
        let unfit = |expected| Error::Value {
            op: op.to_owned(),
            expected,
        };
        let any = || value.cloned().ok_or_else(|| unfit("given"));
        let text = || {
            let text = value.and_then(Value::as_str);
            text.ok_or_else(|| unfit("a text; put it in quotes"))
        };
        let ordered = |orders| {
            let number = value.and_then(Value::as_number);
            let number = number.ok_or_else(|| unfit("a number, without quotes"))?;
            Ok(Self::Ordered(number.clone(), orders))
        };
        match op {
            "exists" => match value {
                None | Some(Value::Bool(true)) => Ok(Self::Exists),
                Some(_) => Err(unfit("left out; for absence write not: {path, op: exists}")),
            },
            "eq" => Ok(Self::Equals(any()?)),
            "neq" => Ok(Self::Differs(any()?)),
            "in" => {
                let list = value.and_then(Value::as_array);
                Ok(Self::OneOf(list.ok_or_else(|| unfit("a list"))?.clone()))
            }
            "gt" => ordered(&[Ordering::Greater]),
            "gte" => ordered(&[Ordering::Greater, Ordering::Equal]),
            "lt" => ordered(&[Ordering::Less]),
            "lte" => ordered(&[Ordering::Less, Ordering::Equal]),
            "contains" => Ok(Self::Contains(text()?.to_lowercase())),
            "startswith" => Ok(Self::StartsWith(text()?.to_lowercase())),
            "endswith" => Ok(Self::EndsWith(text()?.to_lowercase())),
            "regex" => Ok(Self::Matches(whole_string(text()?)?)),
            _ => Err(Error::Operator(op.to_owned())),
        }
    }

    fn holds(&self, found: Option<Value>) -> bool {
        let exists = found.is_some();
        let found = found.unwrap_or(Value::Null);
        let lower = |test: &dyn Fn(&str) -> bool| {
            found
                .as_str()
                .is_some_and(|text| test(&text.to_lowercase()))
        };
        match self {
            Self::Exists => exists,
            Self::Equals(value) => same(&found, value),
            Self::Differs(value) => !same(&found, value),
            Self::OneOf(values) => values.iter().any(|value| same(&found, value)),
            Self::Ordered(number, orders) => found
                .as_number()
                .and_then(|found| compare(found, number))
                .is_some_and(|order| orders.contains(&order)),
            Self::Contains(part) => lower(&|text| text.contains(part)),
            Self::StartsWith(part) => lower(&|text| text.starts_with(part)),
            Self::EndsWith(part) => lower(&|text| text.ends_with(part)),
            Self::Matches(regex) => found.as_str().is_some_and(|text| regex.is_match(text)),
        }
    }
}

fn whole_string(pattern: &str) -> Result<Regex, Error> {
    let unfit = || Error::Pattern(pattern.to_owned());
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(unfit());
    }
    let build = |pattern: &str| {
        let built = RegexBuilder::new(pattern)
            .size_limit(PROGRAM_BYTES_MAX)
            .build();
        built.map_err(|_| unfit())
    };
    // Compiled alone first: `a)|(b` would be valid inside the group and escape it.
    build(pattern)?;
    build(&format!(r"\A(?:{pattern})\z"))
}

/// Equality in which 1 and 1.0 are the same number, at every depth.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            compare(left, right) == Some(Ordering::Equal)
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let pair = |(key, left): (&String, &Value)| {
                right.get(key).is_some_and(|right| same(left, right))
            };
            left.len() == right.len() && left.iter().all(pair)
        }
        (left, right) => left == right,
    }
}

/// Integers are compared exactly; floating point would make large neighbours equal.
fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn holds(condition: &Value, payload: &Value) -> bool {
        let context = json!({"user": {"role": "Admin"}});
        let config = json!({"limit": 10});
        let scope = PathScope {
            payload,
            context: context.as_object().unwrap(),
            config: config.as_object().unwrap(),
        };
        Condition::from_json(condition).unwrap().holds(&scope)
    }

    #[test]
    fn every_operator_answers_for_its_type_only_du_090() {
        let payload = json!({
            "n": 5, "f": 5.0, "big": 9_007_199_254_740_993_i64, "s": "Hello World", "null": null, "list": [1, 2.0], "b": true,
        });
        let check = |path: &str, op: &str, value: Value, expected: bool| {
            let condition = json!({"path": path, "op": op, "value": value});
            assert_eq!(holds(&condition, &payload), expected, "{condition}");
        };
        let exists = |path| holds(&json!({"path": path, "op": "exists"}), &payload);
        assert!(exists("payload.n") && exists("payload.null") && exists("context.user.role"));
        assert!(!exists("payload.x") && !exists("payload.s.x") && !exists("config.none"));
        check("payload.n", "eq", json!(5.0), true);
        check("payload.n", "eq", json!("5"), false);
        check("payload.list", "eq", json!([1.0, 2]), true);
        check("payload.missing", "eq", json!(null), true);
        check("payload.n", "neq", json!("5"), true);
        check("payload.missing", "neq", json!(null), false);
        check("payload.s", "in", json!(["x", "Hello World"]), true);
        check("payload.n", "in", json!(["5"]), false);
        check("payload.n", "gt", json!(4.5), true);
        check("payload.n", "gt", json!(5), false);
        check("payload.n", "gte", json!(5), true);
        check("payload.n", "lt", json!(6), true);
        check("payload.n", "lte", json!(4), false);
        check("payload.s", "gt", json!(1), false);
        check("payload.missing", "lt", json!(1), false);
        check("payload.big", "gt", json!(9_007_199_254_740_992_i64), true);
        check("payload.s", "contains", json!("LO wo"), true);
        check("payload.list", "contains", json!("1"), false);
        check("payload.s", "startswith", json!("hello"), true);
        check("payload.s", "endswith", json!("WORLD"), true);
        check("payload.s", "endswith", json!("hello"), false);
        check("payload.s", "regex", json!("Hello.*"), true);
        check("payload.s", "regex", json!("Hello"), false);
        check("payload.s", "regex", json!("(?i)hello world"), true);
        check("payload.s", "regex", json!("Hello|x"), false);
        check("payload.n", "regex", json!("5"), false);
        check("context.user.role", "eq", json!("Admin"), true);
        check("config.limit", "eq", json!(10), true);
    }

    #[test]
    fn all_any_and_not_combine_du_090() {
        let yes = json!({"path": "payload.a", "op": "exists"});
        let no = json!({"not": yes});
        let payload = json!({"a": 1});
        assert!(holds(&json!({"all": [yes, yes]}), &payload));
        assert!(!holds(&json!({"all": [yes, no]}), &payload));
        assert!(holds(&json!({"any": [no, yes]}), &payload));
        assert!(!holds(&json!({"any": [no, no]}), &payload));
        assert!(!holds(&no, &payload));
    }

    #[test]
    fn bad_conditions_are_refused_when_read_du_095() {
        let nested = (0..DEPTH_MAX).fold(
            json!({"path": "payload", "op": "exists"}),
            |inner, _| json!({"not": inner}),
        );
        let wide = vec![json!({"path": "payload.a", "op": "exists"}); NODES_MAX];
        for bad in [
            json!("payload.a"),
            json!({}),
            json!({"all": []}),
            json!({"any": {}}),
            json!({"all": [], "any": []}),
            json!({"none": []}),
            json!({"path": "payload.a"}),
            json!({"path": "payload.a", "op": "like", "value": 1}),
            json!({"path": "event.a", "op": "exists"}),
            json!({"path": "payload..a", "op": "exists"}),
            json!({"path": "payload.a", "op": "exists", "value": false}),
            json!({"path": "payload.a", "op": "eq"}),
            json!({"path": "payload.a", "op": "gt", "value": "1"}),
            json!({"path": "payload.a", "op": "contains", "value": 1}),
            json!({"path": "payload.a", "op": "in", "value": "abc"}),
            json!({"path": "payload.a", "op": "regex", "value": "("}),
            json!({"path": "payload.a", "op": "regex", "value": "a)|(b"}),
            json!({"path": "payload.a", "op": "regex", "value": "(a{900}){900}"}),
            json!({"path": "payload.a", "op": "regex", "value": "a".repeat(PATTERN_BYTES_MAX + 1)}),
            json!({"path": "payload.a", "op": "exists", "else": 1}),
            nested,
            json!({"all": wide}),
        ] {
            assert!(Condition::from_json(&bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn exactly_one_of_less_equal_and_greater_holds_du_090(left: i64, right: i64) {
            let payload = json!({"n": left});
            let test = |op: &str| holds(&json!({"path": "payload.n", "op": op, "value": right}), &payload);
            let holding = ["lt", "eq", "gt"].into_iter().filter(|op| test(op)).count();
            prop_assert_eq!(holding, 1);
            prop_assert_eq!(test("gte"), !test("lt"));
            prop_assert_eq!(test("lte"), !test("gt"));
        }
    }
}
