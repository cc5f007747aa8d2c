//! The JSON of Beam: what is printed reads back as the same value, sorted or not, escaped or not.

use consign_beam::text::{BeamValue, TextError, parse};
use consign_kernel::json::canonical;
use serde::de::IgnoredAny;

pub(crate) fn run(bytes: &[u8]) {
    let parsed = parse(bytes);
    if parsed != Err(TextError::TooDeep) {
        let well_formed = str::from_utf8(bytes)
            .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        assert_eq!(parsed.is_ok(), well_formed, "serde disagrees");
    }
    let Ok(value) = parsed else {
        return;
    };
    printed(&value);
    sorted(&value);
    // A second implementation of the order of keys and of the form of numbers.
    if let Ok(form) = canonical(bytes) {
        let canonical = parse(&form).expect("canonical text is JSON");
        assert_eq!(canonical.sorted().to_text(), value.sorted().to_text());
    }
}

fn printed(value: &BeamValue) {
    let text = value.to_text();
    let again = parse(text.as_bytes()).expect("printed text is JSON");
    assert_eq!(again.to_text(), text, "not its own fixed point");
    // Infinity prints as null.
    let is_kept = again == *value;
    assert!(is_kept || has_infinity(value), "{text}");
    let ascii = value.to_ascii_text();
    assert!(ascii.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    assert!(parse(ascii.as_bytes()) == Ok(again), "{ascii}");
}

fn sorted(value: &BeamValue) {
    let sorted = value.sorted();
    assert!(sorted.sorted() == sorted, "not its own fixed point");
    assert!(sorted.same_content(value) && value.same_content(&sorted));
    let text = sorted.to_text();
    let again = parse(text.as_bytes()).expect("printed text is JSON");
    assert_eq!(again.to_text(), text, "the order of keys is lost in print");
}

fn has_infinity(value: &BeamValue) -> bool {
    match value {
        BeamValue::Number(number) => number.is_infinite(),
        BeamValue::Array(items) => items.iter().any(has_infinity),
        BeamValue::Object(object) => object.iter().any(|(_, value)| has_infinity(value)),
        BeamValue::Null | BeamValue::Bool(_) | BeamValue::String(_) => false,
    }
}
