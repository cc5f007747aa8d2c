//! Canonical forms and refusals.

use super::*;

fn canonical(text: &str) -> String {
    CanonicalMeta::parse(Some(text))
        .unwrap()
        .as_str()
        .to_owned()
}

#[test]
fn cm_047_the_published_checks_of_canonical_json_pass() {
    for (text, expected) in [
        (
            r#"{"10":1,"9":2,"":3,"A":4,"a":5,"_":6}"#,
            r#"{"":3,"10":1,"9":2,"A":4,"_":6,"a":5}"#,
        ),
        (
            r#"{"a":1.0,"b":1e2,"c":1E-7,"d":0.000001,"f":1e21,"g":-0,"h":5e-324}"#,
            r#"{"a":1,"b":100,"c":1e-7,"d":0.000001,"f":1e+21,"g":0,"h":5e-324}"#,
        ),
        (
            r#"{"x":[56,{"d":true,"10":null,"1":[]}]}"#,
            r#"{"x":[56,{"1":[],"10":null,"d":true}]}"#,
        ),
        (
            r#"{"s":"\u00e9\/\u2028\u0007\n"}"#,
            "{\"s\":\"é/\u{2028}\\u0007\\n\"}",
        ),
    ] {
        assert_eq!(canonical(text), expected);
    }
}

#[test]
fn cm_047_the_order_of_keys_and_white_space_do_not_matter() {
    let spaced = canonical(" { \"b\" : [ 1 , 2 ] ,\n \"a\" : { \"d\" : 1.50 , \"c\" : null } } ");
    assert_eq!(spaced, canonical(r#"{"a":{"c":null,"d":1.5},"b":[1,2]}"#));
}

#[test]
fn cm_049_what_readers_disagree_about_is_refused() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":{"b":1,"b":2}}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"\udc00":1}"#,
        r#"{"a":9007199254740993}"#,
        r#"{"a":-9007199254740992}"#,
        // The rule looks at the token: an integer without an exponent must be exact.
        r#"{"a":100000000000000000000}"#,
        r#"{"a":1e400}"#,
        r#"{"a":NaN}"#,
        r#"{"a":1"#,
        "",
    ] {
        let refused = CanonicalMeta::parse(Some(text));
        assert!(
            matches!(refused, Err(MetaError::NotCanonical(_))),
            "{text}: {refused:?}"
        );
    }
    assert_eq!(
        canonical(r#"{"a":9007199254740991}"#),
        r#"{"a":9007199254740991}"#
    );
}

#[test]
fn only_objects_and_null_are_meta() {
    for text in ["1", "true", "\"x\"", "[]"] {
        assert_eq!(
            CanonicalMeta::parse(Some(text)),
            Err(MetaError::NotAnObject)
        );
    }
    for empty in [None, Some("null"), Some("{}"), Some(" { } ")] {
        assert_eq!(CanonicalMeta::parse(empty).unwrap().to_member(), None);
    }
    assert_eq!(canonical(r#"{"x":{}}"#), r#"{"x":{}}"#);
}
