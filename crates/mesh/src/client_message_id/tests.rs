//! Validity, and which of three sources is used.

use super::*;

fn minted() -> MeshUlid {
    MeshUlid::new(1_700_000_000_000, 42)
}

fn chosen(header: Option<&str>, body: Option<&str>) -> String {
    ClientMessageId::choose(header, body, minted)
        .unwrap()
        .to_string()
}

#[test]
fn cm_039_the_header_precedes_the_body_and_the_body_precedes_a_minted_id() {
    assert_eq!(chosen(Some("header"), Some("body")), "header");
    assert_eq!(chosen(Some("header"), None), "header");
    assert_eq!(chosen(None, Some("body")), "body");
    let id = chosen(None, None);
    assert!(MeshUlid::is_valid(&id), "{id}");
}

#[test]
fn an_invalid_header_is_refused_although_the_body_has_an_id() {
    let refused = ClientMessageId::choose(Some("  "), Some("body"), minted);
    assert_eq!(refused, Err(InvalidClientMessageId));
}

#[test]
fn ids_are_printable_ascii_without_spaces() {
    let longest = "i".repeat(128);
    for valid in ["a", "order-7|x", "~!@#", &longest] {
        assert_eq!(ClientMessageId::parse(valid).unwrap().as_str(), valid);
    }
    assert_eq!(ClientMessageId::parse(" a\t").unwrap().as_str(), "a");
    let too_long = "i".repeat(129);
    for invalid in ["", " ", "a b", "é", "a\0b", "a\u{7f}", &too_long] {
        assert!(ClientMessageId::parse(invalid).is_err(), "{invalid:?}");
    }
}
