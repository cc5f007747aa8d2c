//! JSON: the kernel's four operations on a text agree with each other, and with serde where it applies.

use consign_kernel::json::{
    CanonicalError, DEPTH_MAX, Defect, JsonKind, Object, Raw, canonical, compact, fingerprint,
    utf8_len,
};
use serde::de::IgnoredAny;
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    let compacted = compact(bytes, DEPTH_MAX);
    assert_eq!(
        Raw::parse(bytes, DEPTH_MAX).map(|_| ()),
        compacted.as_ref().map(|_| ()).map_err(|defect| *defect),
        "two readers disagree"
    );
    if !matches!(compacted, Err(Defect::TooDeep { .. })) {
        let well_formed = str::from_utf8(bytes)
            .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        assert_eq!(compacted.is_ok(), well_formed, "serde disagrees");
    }
    let Ok(compacted) = compacted else {
        assert!(canonical(bytes).is_err(), "canonical took what is not JSON");
        assert!(Object::parse(bytes, DEPTH_MAX).is_err());
        return;
    };
    stored(bytes, &compacted);
    compared(bytes, &compacted);
    signed(bytes, &compacted);
    read(Raw::parse(bytes, DEPTH_MAX).expect("compact took it"));
}

fn stored(bytes: &[u8], compacted: &str) {
    assert!(compacted.len() <= bytes.len());
    assert!(utf8_len(compacted) <= compacted.len());
    let again = compact(compacted.as_bytes(), DEPTH_MAX);
    assert_eq!(
        again.as_deref(),
        Ok(compacted),
        "compact is not its own fixed point"
    );
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let kept: Value = serde_json::from_str(compacted).expect("compact text is JSON");
        assert_eq!(kept, value, "compact changed the meaning");
    }
}

fn compared(bytes: &[u8], compacted: &str) {
    let print = fingerprint(bytes).expect("a fingerprint has no limits of its own");
    assert_eq!(fingerprint(compacted.as_bytes()), Ok(print));
    let wrapped = format!("[{compacted}]");
    assert_ne!(fingerprint(wrapped.as_bytes()), Ok(print));
}

fn signed(bytes: &[u8], compacted: &str) {
    // Positions in an error refer to its own text, so only the bytes are compared.
    let form = canonical(bytes);
    let same = canonical(compacted.as_bytes());
    assert_eq!(form.as_ref().ok(), same.as_ref().ok());
    let Ok(form) = form else {
        return;
    };
    match canonical(&form) {
        Ok(again) => assert_eq!(again, form, "canonical is not its own fixed point"),
        // Documented: written with an exponent, printed as the plain integer that is refused.
        Err(refusal) => assert!(
            matches!(refusal, CanonicalError::UnsafeInteger { .. }),
            "{refusal}"
        ),
    }
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let meant: Value = serde_json::from_slice(&form).expect("canonical text is JSON");
        assert_eq!(
            doubles(meant),
            doubles(value),
            "canonical changed the meaning"
        );
    }
}

/// Numbers are compared by value, because canonical text may write them differently.
fn doubles(value: Value) -> Value {
    match value {
        // Adding zero turns negative zero, which canonical text does not have, into positive zero.
        Value::Number(number) => number.as_f64().map(|double| double + 0.0).into(),
        Value::Array(items) => items.into_iter().map(doubles).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members.map(|(key, value)| (key, doubles(value))).collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}

/// Visits every value inside, without recursion, with every accessor.
fn read(whole: Raw<'_>) {
    let mut open = vec![whole];
    while let Some(raw) = open.pop() {
        let text = raw.text();
        assert_eq!(
            raw.as_str().as_deref(),
            serde_json::from_str::<String>(text).ok().as_deref()
        );
        assert_eq!(raw.as_bool(), serde_json::from_str(text).ok());
        if let Ok(integer) = serde_json::from_str::<i64>(text)
            && !text.contains(['.', 'e', 'E'])
        {
            assert_eq!(raw.as_i64(), Some(integer));
        }
        let double = serde_json::from_str::<f64>(text).ok();
        assert_eq!(raw.as_f64(), double.filter(|double| double.is_finite()));
        open.extend(raw.items().unwrap_or_default());
        match raw.object() {
            Ok(object) => {
                assert_eq!(raw.kind(), JsonKind::Object);
                for (key, _) in object.members() {
                    assert!(object.get(key).is_some());
                }
                open.extend(object.members().iter().map(|(_, value)| *value));
            }
            Err(Defect::LoneSurrogate { .. }) => assert_eq!(raw.kind(), JsonKind::Object),
            Err(defect) => assert!(
                matches!(defect, Defect::Unexpected { .. }) && raw.kind() != JsonKind::Object,
                "{defect}"
            ),
        }
    }
}
