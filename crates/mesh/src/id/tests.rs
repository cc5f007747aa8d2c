//! Which texts are identifiers.

use super::*;

#[test]
fn opaque_ids_cannot_contain_the_separator_of_signed_texts() {
    for valid in [
        "mesh-1",
        "m_a",
        "01HQX2J6K7M8N9P0Q1R2S3T4V5",
        "x",
        &"m".repeat(128),
    ] {
        assert_eq!(MeshId::parse(valid).unwrap().as_str(), valid);
    }
    for invalid in ["", "a|b", "a b", "a\0", "é", &"m".repeat(129)] {
        assert!(MeshId::parse(invalid).is_err(), "{invalid:?}");
        assert!(MemberId::parse(invalid).is_err(), "{invalid:?}");
    }
}

#[test]
fn slugs_are_usable_as_folder_names() {
    for valid in ["a", "mesh-one", "7", &"s".repeat(64)] {
        assert!(MeshSlug::parse(valid).is_ok(), "{valid}");
    }
    for invalid in [
        "",
        ".",
        "..",
        "a/b",
        "A",
        "-a",
        "a-",
        "a_b",
        &"s".repeat(65),
    ] {
        assert!(MeshSlug::parse(invalid).is_err(), "{invalid}");
    }
}

#[test]
fn names_of_topics_and_queues_have_no_space_and_no_marker() {
    for valid in ["alerts", "ops/disk", "büro", "a.b:c_d-e"] {
        assert!(TopicName::parse(valid).is_ok(), "{valid}");
    }
    for invalid in [
        "",
        "#alerts",
        "a b",
        "a\0b",
        "a|b",
        "@x",
        "*",
        &"t".repeat(65),
    ] {
        assert!(TopicName::parse(invalid).is_err(), "{invalid:?}");
    }
    assert!(QueueName::parse("q_01HQX2J6K7M8N9P0Q1R2S3T4V5").is_ok());
    assert!(QueueName::parse(&"q".repeat(129)).is_err());
    assert!(GroupName::parse("a//b").is_err());
    assert!(GroupName::parse("/a").is_err());
    assert!(DisplayName::parse("GPU worker 3").is_ok());
    assert!(DisplayName::parse(" x").is_err());
    assert!(DisplayName::parse("x\n").is_err());
}

#[test]
fn a_member_of_a_nested_group_belongs_to_the_groups_above() {
    let group = |text| GroupName::parse(text).unwrap();
    for (member_of, addressed, receives) in [
        ("a", "a", true),
        ("a/b", "a", true),
        ("a/b/c", "a/b", true),
        ("a", "a/b", false),
        ("ab", "a", false),
        ("b/a", "a", false),
    ] {
        assert_eq!(
            group(member_of).is_within(&group(addressed)),
            receives,
            "{member_of} {addressed}"
        );
    }
}

#[test]
fn message_ids_are_printed_as_uuids_in_lower_case() {
    let text = "3f0b6d2e-6c1e-4a53-9d0f-0d3a8d9f6c11";
    let id = BrokerMessageId::parse(&text.to_uppercase()).unwrap();
    assert_eq!(id.to_string(), text);
    assert_eq!(BrokerMessageId::from_bytes(id.to_bytes()), id);
    for invalid in [
        "",
        "3f0b6d2e6c1e4a539d0f0d3a8d9f6c11",
        "3f0b6d2e-6c1e-4a53-9d0f-0d3a8d9f6c1g",
        "3f0b6d2e-6c1e-4a53-9d0f0-d3a8d9f6c11",
    ] {
        assert!(BrokerMessageId::parse(invalid).is_err(), "{invalid}");
    }
    let later = BrokerMessageId::from_bytes([0x40; 16]);
    assert!(later > id && later.to_string() > id.to_string());
}
