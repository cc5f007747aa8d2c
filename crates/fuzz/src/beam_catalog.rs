//! Catalogs of intents and payloads: the check needs no order of members, and refuses what the catalog does not allow.
//!
//! Input: the name of an intent, a line end, a payload; or a catalog, which begins with a brace.

use consign_beam::catalog::schema::PayloadNode as _;
use consign_beam::catalog::{BUILT_IN, Catalog, CatalogIntent, CatalogRefusal};
use consign_beam::text::{BeamValue, parse};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    if text.trim_start().starts_with('{') {
        if let Ok(catalog) = Catalog::parse(text) {
            keeps_its_rules(&catalog);
        }
        return;
    }
    let (intent, payload) = text.split_once('\n').unwrap_or((text, "{}"));
    let Ok(value) = parse(payload.as_bytes()) else {
        return;
    };
    check(&BUILT_IN, intent, &value);
    // The same check on a value of another parser.
    if let Ok(other) = serde_json::from_str::<serde_json::Value>(payload) {
        assert_eq!(
            BUILT_IN.check(intent, &other),
            BUILT_IN.check(intent, &value)
        );
    }
}

fn keeps_its_rules(catalog: &Catalog) {
    for (index, intent) in catalog.intents().iter().enumerate() {
        assert!(!intent.id.trim().is_empty());
        let same = catalog
            .intents()
            .iter()
            .position(|other| other.id == intent.id);
        assert_eq!(same, Some(index), "an intent is listed twice");
        let empty = parse(b"{}").expect("an empty object");
        check(catalog, &intent.id, &empty);
        check(catalog, &intent.id, &sample(intent));
    }
    let again = Catalog::parse(catalog.document()).expect("the document is a catalog");
    assert_eq!(again.intents(), catalog.intents());
}

/// A payload with every listed field, of one type.
fn sample(intent: &CatalogIntent) -> BeamValue {
    let names = intent.payload.fields().map(|(name, _)| name);
    let members = names.map(|name| (name.into(), BeamValue::from(name)));
    BeamValue::Object(members.collect())
}

fn check(catalog: &Catalog, intent: &str, payload: &BeamValue) {
    let result = catalog.check(intent, payload);
    assert_eq!(catalog.check(intent, &payload.sorted()), result);
    let Some(listed) = catalog.get(intent) else {
        let intent = intent.to_owned();
        assert_eq!(result, Err(CatalogRefusal::UnknownIntent { intent }));
        return;
    };
    match result {
        Ok(()) => {
            assert!(payload.is_object());
            for (name, field) in listed.payload.fields() {
                assert!(!field.required || payload.member(name).is_some(), "{name}");
            }
        }
        Err(refusal) => {
            let text = refusal.to_string();
            let start = format!("Invalid payload for intent {intent} at /");
            assert!(text.starts_with(&start), "{text}");
        }
    }
}
