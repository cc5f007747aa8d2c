//! The digits of known values, and the order of texts.

use super::*;

#[test]
fn the_digits_are_those_of_the_ulid_specification() {
    assert_eq!(
        MeshUlid::new(0, 0).to_string(),
        "00000000000000000000000000"
    );
    let all = MeshUlid::new(u64::MAX, u128::MAX).to_string();
    assert_eq!(all, "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
    // The example of the specification: 1469918176385 is 01ARYZ6S41.
    let text = MeshUlid::new(1_469_918_176_385, 0).to_string();
    assert_eq!(text, "01ARYZ6S410000000000000000");
}

#[test]
fn later_ids_are_greater_texts() {
    let earlier = MeshUlid::new(1_700_000_000_000, u128::MAX).to_string();
    let later = MeshUlid::new(1_700_000_000_001, 0).to_string();
    assert!(earlier < later);
}

#[test]
fn ids_of_a_sequence_grow_within_a_millisecond() {
    let sequence = UlidSequence::default();
    let first = sequence.next(1_700_000_000_000, u128::MAX >> 49);
    let second = sequence.next(1_700_000_000_000, 7);
    let set_back = sequence.next(1_600_000_000_000, 7);
    assert!(first < second && second < set_back);
    assert!(sequence.next(1_700_000_000_001, 0) > set_back);
}

#[test]
fn only_26_digits_that_fit_128_bits_are_valid() {
    assert!(MeshUlid::is_valid("01HQX2J6K7M8N9P0Q1R2S3T4V5"));
    for invalid in [
        "",
        "01HQX2J6K7M8N9P0Q1R2S3T4V",
        "81HQX2J6K7M8N9P0Q1R2S3T4V5",
        "01HQX2J6K7M8N9P0Q1R2S3T4VI",
    ] {
        assert!(!MeshUlid::is_valid(invalid), "{invalid}");
    }
}
