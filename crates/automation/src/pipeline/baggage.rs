//! Baggage: values that a step claims from its event and that all later steps receive.
//!
//! Invariant: inherited values never change. A claim may add values or repeat existing ones.

use consign_kernel::plant::{self, Plant};
use serde_json::map::Entry;
use serde_json::{Map, Value};

use super::path::{PathScope, Root, ValuePath};
use crate::nesting::{LEVELS_MAX, is_deeper};

pub const BAGGAGE_BYTES_MAX: usize = 1 << 20;

/// An error in the configuration of claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimsError {
    #[error("baggage must be a mapping, such as {{user.id: payload.user_id}}")]
    Shape,
    #[error(
        "baggage `{0}` is not a valid name; write letters, digits and _, with dots between parts"
    )]
    Name(String),
    #[error("baggage source `{0}` is unknown; write payload.name or context.name")]
    Source(String),
    #[error(
        "baggage needs both from and namespace, or neither; write from: payload and namespace: name"
    )]
    Namespace,
}

/// An error in the values that a claim refers to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("baggage source `{0}` does not exist")]
    Missing(String),
    #[error("baggage source `{0}` must be an object to be imported")]
    NoObject(String),
    #[error("baggage `{0}` was set by an earlier step and cannot change; claim another name")]
    Immutable(String),
    #[error(
        "baggage would be nested more than {LEVELS_MAX} levels deep; claim less of the context"
    )]
    TooDeep,
    #[error("baggage would be {bytes_actual} bytes; at most {bytes_limit} are carried")]
    TooLarge {
        bytes_actual: usize,
        bytes_limit: usize,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaggageClaims {
    named: Vec<(Vec<String>, ValuePath)>,
    import: Option<(Vec<String>, ValuePath)>,
}

impl BaggageClaims {
    pub fn from_json(value: &Value) -> Result<Self, ClaimsError> {
        let map = value.as_object().ok_or(ClaimsError::Shape)?;
        let text = |key: &str| {
            let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(ClaimsError::Shape);
            map.get(key).map(text).transpose()
        };
        let import = match (text("namespace")?, text("from")?) {
            (Some(namespace), Some(from)) => Some((name(&namespace)?, source(&from)?)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(ClaimsError::Namespace),
        };
        let named = map
            .iter()
            .filter(|(key, _)| !["from", "namespace"].contains(&key.as_str()))
            .map(|(key, from)| {
                let from = from.as_str().ok_or(ClaimsError::Shape)?;
                Ok((name(key)?, source(from)?))
            });
        Ok(Self {
            named: named.collect::<Result<_, _>>()?,
            import,
        })
    }

    /// The parent's baggage plus the claims of this step.
    pub fn accrete(
        &self,
        inherited: &Map<String, Value>,
        payload: &Value,
    ) -> Result<Map<String, Value>, Error> {
        let scope = PathScope {
            payload,
            context: inherited,
            config: &Map::new(),
        };
        let mut baggage = inherited.clone();
        if let Some((namespace, from)) = &self.import {
            let value = fetch(&scope, from)?;
            if !value.is_object() {
                return Err(Error::NoObject(from.to_string()));
            }
            merge(&mut baggage, nest(namespace, value), "")?;
        }
        for (name, from) in &self.named {
            merge(&mut baggage, nest(name, fetch(&scope, from)?), "")?;
        }
        if baggage
            .values()
            .any(|value| is_deeper(value, LEVELS_MAX - 1))
        {
            return Err(Error::TooDeep);
        }
        check_size(&baggage)?;
        Ok(baggage)
    }
}

fn name(text: &str) -> Result<Vec<String>, ClaimsError> {
    let fits = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !text.split('.').all(fits) || text.split('.').count() > LEVELS_MAX {
        return Err(ClaimsError::Name(text.to_owned()));
    }
    Ok(text.split('.').map(str::to_owned).collect())
}

fn source(text: &str) -> Result<ValuePath, ClaimsError> {
    let path = ValuePath::parse(text).filter(|path| path.root != Root::Config);
    path.ok_or_else(|| ClaimsError::Source(text.to_owned()))
}

fn fetch(scope: &PathScope<'_>, from: &ValuePath) -> Result<Value, Error> {
    scope
        .get(from)
        .ok_or_else(|| Error::Missing(from.to_string()))
}

/// The map that contains `value` under the given name.
fn nest(name: &[String], value: Value) -> Map<String, Value> {
    let mut inner = value;
    for part in name.iter().skip(1).rev() {
        inner = Value::Object(Map::from_iter([(part.clone(), inner)]));
    }
    name.first()
        .map(|first| (first.clone(), inner))
        .into_iter()
        .collect()
}

fn merge(
    into: &mut Map<String, Value>,
    from: Map<String, Value>,
    above: &str,
) -> Result<(), Error> {
    for (key, value) in from {
        let place = if above.is_empty() {
            key.clone()
        } else {
            format!("{above}.{key}")
        };
        match into.entry(key) {
            Entry::Vacant(free) => {
                free.insert(value);
            }
            Entry::Occupied(mut held) => match (held.get_mut(), value) {
                (Value::Object(held), Value::Object(value)) => merge(held, value, &place)?,
                (held, value) if *held == value => {}
                (held, value) if plant::on(Plant::BaggageOverwritten) => *held = value,
                _ => return Err(Error::Immutable(place)),
            },
        }
    }
    Ok(())
}

fn check_size(baggage: &Map<String, Value>) -> Result<(), Error> {
    let bytes_actual = serde_json::to_vec(baggage).map_or(usize::MAX, |bytes| bytes.len());
    if bytes_actual > BAGGAGE_BYTES_MAX {
        return Err(Error::TooLarge {
            bytes_actual,
            bytes_limit: BAGGAGE_BYTES_MAX,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn accrete(claims: &Value, inherited: &Value, payload: &Value) -> Result<Value, Error> {
        let claims = BaggageClaims::from_json(claims).unwrap();
        let found = claims.accrete(inherited.as_object().unwrap(), payload);
        found.map(Value::Object)
    }

    #[test]
    fn claims_are_added_beside_what_is_inherited_du_093() {
        let inherited = json!({"user": {"id": 1}, "trace": "t"});
        let payload = json!({"name": "ann", "meta": {"a": 1, "b": {"c": 2}}});
        let claims = json!({"user.name": "payload.name", "copy": "context.trace", "from": "payload.meta", "namespace": "meta"});
        let expected = json!({
            "user": {"id": 1, "name": "ann"}, "trace": "t", "copy": "t", "meta": {"a": 1, "b": {"c": 2}},
        });
        assert_eq!(accrete(&claims, &inherited, &payload), Ok(expected));
        let whole = accrete(
            &json!({"from": "payload", "namespace": "event"}),
            &json!({}),
            &payload,
        );
        assert_eq!(whole, Ok(json!({"event": payload})));
        assert_eq!(accrete(&json!({}), &inherited, &payload), Ok(inherited));
    }

    #[test]
    fn inherited_values_may_be_repeated_but_not_changed_du_093() {
        consign_testkit::plants::from_environment();
        let inherited = json!({"user": {"id": 1}});
        let claim = json!({"user.id": "payload.id"});
        assert_eq!(
            accrete(&claim, &inherited, &json!({"id": 1})),
            Ok(inherited.clone())
        );
        let changed = accrete(&claim, &inherited, &json!({"id": 2}));
        assert_eq!(changed, Err(Error::Immutable("user.id".to_owned())));
        let replaced = accrete(
            &json!({"user": "payload.id"}),
            &inherited,
            &json!({"id": 2}),
        );
        assert_eq!(replaced, Err(Error::Immutable("user".to_owned())));
        let below = accrete(
            &json!({"user.id.x": "payload.id"}),
            &inherited,
            &json!({"id": 2}),
        );
        assert_eq!(below, Err(Error::Immutable("user.id".to_owned())));
    }

    #[test]
    fn missing_or_unfit_sources_fail_du_093() {
        let missing = accrete(&json!({"a": "payload.x"}), &json!({}), &json!({}));
        assert_eq!(missing, Err(Error::Missing("payload.x".to_owned())));
        let text = accrete(
            &json!({"from": "payload.x", "namespace": "n"}),
            &json!({}),
            &json!({"x": "y"}),
        );
        assert_eq!(text, Err(Error::NoObject("payload.x".to_owned())));
    }

    #[test]
    fn too_much_baggage_is_refused_with_both_sizes_du_107() {
        let fits = "x".repeat(BAGGAGE_BYTES_MAX - r#"{"a":""}"#.len());
        let claim = json!({"a": "payload.a"});
        assert!(accrete(&claim, &json!({}), &json!({"a": fits})).is_ok());
        let found = accrete(&claim, &json!({}), &json!({"a": format!("{fits}x")}));
        assert_eq!(
            found,
            Err(Error::TooLarge {
                bytes_actual: BAGGAGE_BYTES_MAX + 1,
                bytes_limit: BAGGAGE_BYTES_MAX
            })
        );
    }

    #[test]
    fn context_copied_into_itself_step_after_step_is_stopped_du_107() {
        let claims = |step: usize| {
            BaggageClaims::from_json(&json!({format!("c{step}.x"): "context"})).unwrap()
        };
        let mut baggage = Map::from_iter([("n".to_owned(), json!(1))]);
        let grown = (0..100).try_for_each(|step| {
            baggage = claims(step).accrete(&baggage, &json!({}))?;
            Ok(())
        });
        assert!(
            matches!(grown, Err(Error::TooDeep | Error::TooLarge { .. })),
            "{grown:?}"
        );
        let level = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"a": inner}));
        let carried = |levels| accrete(&json!({"top": "payload"}), &json!({}), &level(levels));
        assert!(carried(LEVELS_MAX - 1).is_ok());
        assert_eq!(carried(LEVELS_MAX), Err(Error::TooDeep));
    }

    #[test]
    fn unsound_claims_are_refused_when_read_du_095() {
        for bad in [
            json!([]),
            json!({"1a": "payload.x"}),
            json!({"a..b": "payload.x"}),
            json!({"a-b": "payload.x"}),
            json!({"a": "config.x"}),
            json!({"a": "x"}),
            json!({"a": 1}),
            json!({"from": "payload"}),
            json!({"namespace": "n"}),
            json!({"from": "payload", "namespace": "a b"}),
        ] {
            assert!(BaggageClaims::from_json(&bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_was_inherited_is_found_again_after_any_claim_du_093(
            names in prop::collection::vec("[a-c](\\.[a-c]){0,2}", 1..6),
        ) {
            let mut baggage = Map::new();
            for (number, name) in names.iter().enumerate() {
                let claims = BaggageClaims::from_json(&json!({name: "payload.n"})).unwrap();
                let Ok(grown) = claims.accrete(&baggage, &json!({"n": number})) else { continue };
                let again = nest(&["all".to_owned()], Value::Object(baggage.clone()));
                let mut all = nest(&["all".to_owned()], Value::Object(grown.clone()));
                prop_assert_eq!(merge(&mut all, again, ""), Ok(()));
                prop_assert_eq!(&all["all"], &Value::Object(grown.clone()));
                baggage = grown;
            }
        }
    }
}
