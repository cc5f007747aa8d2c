//! What is read and printed, compared with the output of ECMAScript.

use proptest::prelude::*;

use super::*;

fn value(text: &str) -> BeamValue {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn check(text: &str, expected: &str) {
    assert_eq!(value(text).to_text(), expected, "{text}");
}

#[track_caller]
fn refused(text: &str, expected: TextError) {
    assert_eq!(parse(text.as_bytes()), Err(expected), "{text}");
}

#[test]
fn numbers_print_as_ecmascript_prints_them() {
    for (text, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("-0e5", "0"),
        ("184.0", "184"),
        ("1.5e3", "1500"),
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("123456789012345680000", "123456789012345680000"),
        ("1e-6", "0.000001"),
        ("1e-7", "1e-7"),
        ("1E+2", "100"),
        ("0.1", "0.1"),
        ("-4.50", "-4.5"),
        ("12345678901234567890", "12345678901234567000"),
        ("9007199254740993", "9007199254740992"),
        ("5e-324", "5e-324"),
        ("2e-324", "0"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("0.1e-400", "0"),
        ("1e400", "null"),
        ("-1e400", "null"),
    ] {
        check(text, expected);
    }
}

#[test]
fn index_keys_come_first_in_numeric_order() {
    check(
        r#"{"b":1,"10":2,"a":3,"2":4,"0":5}"#,
        r#"{"0":5,"2":4,"10":2,"b":1,"a":3}"#,
    );
    check(
        r#"{"a":1,"4294967295":2,"4294967294":3}"#,
        r#"{"4294967294":3,"a":1,"4294967295":2}"#,
    );
    let no_indices = r#"{"z":0,"01":1,"00":2,"":3,"-1":4,"1.0":5,"1e3":6,"+1":7," 1":8,"99999999999999999999":9}"#;
    check(no_indices, no_indices);
    check(r#"[{"a":{"1":1,"0":2}}]"#, r#"[{"a":{"0":2,"1":1}}]"#);
}

#[test]
fn the_last_of_duplicate_keys_counts_in_the_first_position() {
    check(r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#);
    check(
        r#"{"a":1,"b":2,"\u0061":{"c":4}}"#,
        r#"{"a":{"c":4},"b":2}"#,
    );
    check(r#"{"5":1,"1":2,"5":3}"#, r#"{"1":2,"5":3}"#);
    check(r#"{"\ud800":1,"x":2,"\uD800":3}"#, r#"{"\ud800":3,"x":2}"#);
    check(
        r#"{"__proto__":1,"constructor":2}"#,
        r#"{"__proto__":1,"constructor":2}"#,
    );
}

#[test]
fn only_what_must_be_escaped_is_escaped() {
    check(
        r#""\"\\\/\b\f\n\r\t\u0000\u001F\u007f\u00e9\u2028\u2029/""#,
        "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}é\u{2028}\u{2029}/\"",
    );
    check(r#""\ud83d\ude80""#, "\"🚀\"");
    check("\"é\u{fdd0}\u{10ffff}\"", "\"é\u{fdd0}\u{10ffff}\"");
    check(
        " [ 1 , { \"a\" : [ ] } ,\t\r\nnull ] ",
        r#"[1,{"a":[]},null]"#,
    );
}

#[test]
fn half_of_a_surrogate_pair_is_kept() {
    for half in [
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""a\udbffz""#,
        r#""\ud83d🚀""#,
        r#""🚀\ude80\u0000""#,
    ] {
        check(half, half);
        let string = value(half);
        assert_eq!(string.as_str(), None);
        assert!(string.is_string());
        assert_eq!(value(&string.to_ascii_text()), string);
    }
    check(r#""\uDC00""#, r#""\udc00""#);
    assert_eq!(
        value(r#""a\ud800""#).as_string().unwrap().to_text_lossy(),
        "a\u{fffd}"
    );
}

#[test]
fn ascii_text_is_what_python_prints_by_default() {
    let text = "{\"Grüße\":\"Ω🚀\\n\\u0001/\\\"\u{7f}~\u{80}\"}";
    assert_eq!(
        value(text).to_ascii_text(),
        r#"{"Gr\u00fc\u00dfe":"\u03a9\ud83d\ude80\n\u0001/\"\u007f~\u0080"}"#
    );
    let plain = r#"{"a":[1,true,null,"x"]}"#;
    assert_eq!(value(plain).to_ascii_text(), plain);
}

#[test]
fn sorting_compares_code_units_and_index_keys_stay_first() {
    let sorted = |text: &str| value(text).sorted().to_text();
    assert_eq!(
        sorted(r#"{"b":{"z":1,"a":[{"d":1,"c":2}]},"a":0}"#),
        r#"{"a":0,"b":{"a":[{"c":2,"d":1}],"z":1}}"#
    );
    assert_eq!(
        sorted(r#"{"a":1,"10":2,"2":3,"01":4}"#),
        r#"{"2":3,"10":2,"01":4,"a":1}"#
    );
    // U+1F680 starts with the unit D83D, which is below FB33.
    assert_eq!(
        sorted(r#"{"\ufb33":1,"🚀":2,"é":3,"\ud800":4,"Z":5}"#),
        "{\"Z\":5,\"é\":3,\"\\ud800\":4,\"🚀\":2,\"\u{fb33}\":1}"
    );
}

#[test]
fn content_is_compared_without_the_order_of_members() {
    let same = |a: &str, b: &str| value(a).same_content(&value(b));
    assert!(same(
        r#"{"a":[1,{"c":1,"d":2}],"b":0}"#,
        r#"{"b":0.0,"a":[1,{"d":2,"c":1}]}"#
    ));
    assert!(!same("[1,2]", "[2,1]"));
    assert!(!same("[1]", "[1,1]"));
    assert!(!same(r#"{"a":1}"#, r#"{"a":1,"b":1}"#));
    assert!(!same(r#"{"a":1}"#, r#"{"b":1}"#));
    assert!(!same(r#"{"a":"1"}"#, r#"{"a":1}"#));
    assert!(!same("{}", "[]"));
    assert_ne!(value(r#"{"a":1,"b":2}"#), value(r#"{"b":2,"a":1}"#));
}

#[test]
fn members_are_inserted_and_removed_where_ecmascript_does() {
    let mut object = BeamObject::new();
    for (at, key) in ["b", "10", "a", "2", "b"].into_iter().enumerate() {
        object.insert(key, i64::try_from(at).unwrap());
    }
    assert_eq!(object.get("10").and_then(BeamValue::as_f64), Some(1.0));
    assert!(!object.contains("c"));
    let text = |object: &BeamObject| BeamValue::from(object.clone()).to_text();
    assert_eq!(text(&object), r#"{"2":3,"10":1,"b":4,"a":2}"#);
    assert_eq!(object.remove("10"), Some(1_i64.into()));
    assert_eq!(object.remove("10"), None);
    assert_eq!(text(&object), r#"{"2":3,"b":4,"a":2}"#);
    assert_eq!((object.len(), object.is_empty()), (3, false));
    object.insert("4294967295", 5_i64);
    object.insert("4294967294", 6_i64);
    assert_eq!(
        text(&object),
        r#"{"2":3,"4294967294":6,"b":4,"a":2,"4294967295":5}"#
    );
}

#[test]
fn text_that_ecmascript_refuses_is_refused() {
    for (text, expected) in [
        ("", TextError::Truncated),
        (" ", TextError::Truncated),
        ("[1", TextError::Truncated),
        ("\"abc", TextError::Truncated),
        ("\"\\", TextError::Truncated),
        ("\"\\u12", TextError::Truncated),
        ("-", TextError::Truncated),
        ("1e", TextError::Truncated),
        ("{\"a\"", TextError::Truncated),
        ("tru", TextError::Truncated),
        ("nulL", TextError::Syntax { at: 3 }),
        ("[1,]", TextError::Syntax { at: 3 }),
        ("{\"a\":1,}", TextError::Syntax { at: 7 }),
        ("{a:1}", TextError::Syntax { at: 1 }),
        ("+1", TextError::Syntax { at: 0 }),
        (".5", TextError::Syntax { at: 0 }),
        ("1.x", TextError::Syntax { at: 2 }),
        ("-a", TextError::Syntax { at: 1 }),
        ("01", TextError::Trailing { at: 1 }),
        ("1 2", TextError::Trailing { at: 2 }),
        ("\"\n\"", TextError::Syntax { at: 1 }),
        ("\"\\x\"", TextError::Syntax { at: 2 }),
        ("\"\\u12G4\"", TextError::Syntax { at: 5 }),
        ("'a'", TextError::Syntax { at: 0 }),
        ("NaN", TextError::Syntax { at: 0 }),
        ("\u{feff}1", TextError::Syntax { at: 0 }),
        ("\u{a0}1", TextError::Syntax { at: 0 }),
    ] {
        refused(text, expected);
    }
    assert_eq!(parse(b"\"\xff\""), Err(TextError::NotUtf8 { at: 1 }));
    // Half of a surrogate pair in raw bytes is not UTF-8.
    assert_eq!(
        parse(b"\"\xed\xa0\x80\""),
        Err(TextError::NotUtf8 { at: 1 })
    );
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    check(&nested(DEPTH_MAX), &nested(DEPTH_MAX));
    refused(&nested(DEPTH_MAX + 1), TextError::TooDeep);
    refused(&"[".repeat(1_000_000), TextError::TooDeep);
    refused(&"{\"a\":".repeat(1_000_000), TextError::TooDeep);
}

#[test]
fn debug_output_shows_no_content() {
    let text = format!("{:?}", value(r#"{"k":"secret"}"#));
    assert_eq!(text, "Object(1 members)");
    assert_eq!(format!("{:?}", value("\"secret\"")), "String(6 units)");
}

fn any_string() -> impl Strategy<Value = BeamString> {
    prop_oneof![
        ".{0,8}".prop_map(BeamString::from),
        "[0-9]{1,11}".prop_map(BeamString::from),
        proptest::collection::vec(
            prop_oneof![any::<u16>(), 0xd7f0_u16..0xe010, 0_u16..0x80],
            0..8
        )
        .prop_map(BeamString::from_units),
    ]
}

fn any_value() -> impl Strategy<Value = BeamValue> {
    let number = any::<u64>().prop_map(f64::from_bits);
    let leaf = prop_oneof![
        Just(BeamValue::Null),
        any::<bool>().prop_map(BeamValue::from),
        number
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(BeamValue::from),
        (-1000_i64..1000).prop_map(BeamValue::from),
        any_string().prop_map(BeamValue::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(BeamValue::from),
            proptest::collection::vec((any_string(), inner), 0..6)
                .prop_map(|members| BeamValue::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn printed_values_read_back_as_themselves(value in any_value()) {
        let text = value.to_text();
        let read = parse(text.as_bytes()).unwrap();
        prop_assert!(read == value, "{}", text);
        prop_assert_eq!(read.to_text(), text);

        let ascii = value.to_ascii_text();
        prop_assert!(ascii.is_ascii());
        prop_assert!(parse(ascii.as_bytes()).unwrap() == value, "{}", ascii);
    }

    #[test]
    fn sorting_keeps_the_content_and_happens_once(value in any_value()) {
        let sorted = value.sorted();
        prop_assert!(sorted.same_content(&value));
        prop_assert!(sorted.sorted() == sorted);
        let text = sorted.to_text();
        prop_assert_eq!(parse(text.as_bytes()).unwrap().sorted().to_text(), text);
    }

    #[test]
    fn members_inserted_one_by_one_give_the_same_object(
        members in proptest::collection::vec((any_string(), any::<i64>()), 0..12)
    ) {
        let mut object = BeamObject::new();
        for (key, value) in members.clone() {
            object.insert(key, value);
        }
        let collected = members.into_iter().map(|(key, value)| (key, value.into()));
        prop_assert!(object == collected.collect::<BeamObject>());
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_sequence_of_tokens_causes_a_panic(
        tokens in proptest::collection::vec(
            prop_oneof![
                Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\""),
                Just("\\"), Just("u"), Just("d83d"), Just("\\ud800"), Just("1"), Just("-"),
                Just("."), Just("e"), Just("0"), Just("null"), Just("é"), Just("\"a\""), Just(" "),
            ],
            0..40
        )
    ) {
        if let Ok(value) = parse(tokens.concat().as_bytes()) {
            let text = value.to_text();
            prop_assert_eq!(parse(text.as_bytes()).unwrap().to_text(), text);
        }
    }
}
