//! The published vectors, and what changes a fingerprint.

use super::*;

const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// The request of the first vector; the others change parts of it.
struct Sent {
    version: u32,
    to: (DestinationKind, &'static str),
    reply_to: Option<&'static str>,
    priority: MeshPriority,
    meta: Option<&'static str>,
    body: Vec<u8>,
}

impl Default for Sent {
    fn default() -> Self {
        Self {
            version: 1,
            to: (DestinationKind::Topic, "alerts"),
            reply_to: None,
            priority: MeshPriority::Next,
            meta: None,
            body: b"hello".to_vec(),
        }
    }
}

impl Sent {
    fn preimage(&self) -> Result<Vec<u8>, ContainsNul> {
        let meta = CanonicalMeta::parse(self.meta).unwrap();
        self.input(&meta).preimage()
    }

    fn fingerprint(&self) -> RequestFingerprint {
        let meta = CanonicalMeta::parse(self.meta).unwrap();
        self.input(&meta).fingerprint().unwrap()
    }

    fn input<'a>(&self, meta: &'a CanonicalMeta) -> FingerprintInput<'a> {
        FingerprintInput {
            envelope_version: self.version,
            destination_kind: self.to.0,
            destination_ref: self.to.1,
            reply_to_id: self.reply_to,
            priority: self.priority,
            meta,
            body_hash: BodyHash::of(&self.body),
        }
    }
}

#[test]
fn cm_044_cm_045_the_first_vector_has_its_published_preimage() {
    let sent = Sent::default();
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(BodyHash::of(b"hello").to_string(), hash);
    let preimage = sent.preimage().unwrap();
    assert_eq!(preimage.len(), 86);
    assert_eq!(
        HEXLOWER.encode(&preimage),
        "3100746f70696300616c6572747300006e657874000032636632346462613566623061333065323665383362326163356239653239653162313631653563316661373432356537333034333336323933386239383234"
    );
    assert!(preimage.ends_with(hash.as_bytes()));
    assert_eq!(sent.fingerprint().prefix(), "732ac00655886702");
}

#[test]
fn cm_044_all_ten_vectors_match() {
    let v2 = Sent {
        to: (DestinationKind::Dm, KEY),
        reply_to: Some("3f0b6d2e-6c1e-4a53-9d0f-0d3a8d9f6c11"),
        priority: MeshPriority::Now,
        meta: Some(r#"{"z":1,"a":{"y":[true,null,1.5],"b":"é"},"10":"x","9":"w"}"#),
        body: "OOM detected \u{26a0}\u{fe0f} on worker-3".into(),
        ..Sent::default()
    };
    assert_eq!(v2.preimage().unwrap().len(), 235);
    let v3 = Sent {
        to: (DestinationKind::Queue, "q_01HQX2J6K7M8N9P0Q1R2S3T4V5"),
        priority: MeshPriority::Low,
        meta: Some("{}"),
        body: Vec::new(),
        ..Sent::default()
    };
    assert_eq!(v3.preimage().unwrap().len(), 107);
    let now = MeshPriority::Now;
    let low = MeshPriority::Low;
    let vectors = [
        (
            Sent::default(),
            "732ac0065588670239d605eb525efd30389dcb985216d01cad4169dbcaf3dd79",
        ),
        (
            v2,
            "d49270d3a15ecab4cfaaa476a76b08270a4ba5081b584a2e2bc2fbdad7380f51",
        ),
        (
            v3,
            "539cf831d2b09f947290977a0854253f095c5dfe28ff62ec21adf3ec6831b27f",
        ),
        (
            Sent {
                priority: now,
                ..Sent::default()
            },
            "dcf5997bdfd7a4929678141c508b2c9c1b8d59ac8670567bda0dacbd7a1b22f9",
        ),
        (
            Sent {
                version: 2,
                ..Sent::default()
            },
            "5de318e93fa2c9d70d337ed8e33c108703af8ff57eada601c85379f91df164fb",
        ),
        (
            Sent {
                to: (DestinationKind::Dm, KEY),
                meta: Some(
                    r#"{"trace":"01HQX","n":1e21,"f":0.1,"neg":-0.0,"e":"\u2028\"\\/\n\u0007"}"#,
                ),
                body: (0..=255).collect(),
                ..Sent::default()
            },
            "3c2bea9d397b2c0ed94b157d7f290b04a72dea71e936ed2fd6109aec927ad737",
        ),
        (
            Sent {
                to: (DestinationKind::Topic, "ops"),
                priority: low,
                meta: Some("{\"\u{1f600}\":1,\"\u{fb33}\":2,\"\u{20ac}\":3,\"\\r\":4,\"1\":5}"),
                body: b"sort".to_vec(),
                ..Sent::default()
            },
            "e3701a14e328be458f76f4d76a904d98a8b8d0f98978e3bf5b141fedae44ee67",
        ),
        (
            Sent {
                to: (DestinationKind::Queue, "*"),
                body: b"bcast".to_vec(),
                ..Sent::default()
            },
            "91d3bee51b6f67f706c4d589ffaeb81c1db135296516762947864459c8568b70",
        ),
        (
            Sent {
                to: (
                    DestinationKind::Dm,
                    "8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394",
                ),
                priority: now,
                body: b"hi".to_vec(),
                ..Sent::default()
            },
            "66c01d76c5468600dc51408236d116f16779adf6b27bda6e7723582b8b5873de",
        ),
        (
            Sent {
                meta: Some(r#"{"x":{}}"#),
                ..Sent::default()
            },
            "0b7a2f4c7648d18269dd9f0bbe21f9a6aeaec99172ae5cf8e2c610baa1dc0316",
        ),
    ];
    for (at, (sent, expected)) in vectors.iter().enumerate() {
        assert_eq!(sent.fingerprint().to_string(), *expected, "V{}", at + 1);
    }
}

#[test]
fn cm_046_absent_null_and_empty_meta_are_the_same() {
    let with = |meta| {
        Sent {
            meta,
            ..Sent::default()
        }
        .fingerprint()
    };
    let without = Sent::default().fingerprint();
    for meta in [None, Some("null"), Some("{}"), Some("{ }")] {
        assert_eq!(with(meta), without, "{meta:?}");
    }
    assert_ne!(with(Some(r#"{"x":{}}"#)), without);
    assert_ne!(with(Some(r#"{"x":null}"#)), without);
}

#[test]
fn cm_047_meta_counts_by_its_content() {
    let with = |meta| {
        Sent {
            meta: Some(meta),
            ..Sent::default()
        }
        .fingerprint()
    };
    assert_eq!(
        with(r#"{"a":1,"b":[true]}"#),
        with(" {\"b\": [ true ],\n\"a\":1.0}")
    );
    assert_ne!(with(r#"{"a":1}"#), with(r#"{"a":"1"}"#));
}

#[test]
fn cm_048_each_part_alone_changes_the_fingerprint() {
    let first = Sent::default().fingerprint();
    let changed = [
        Sent {
            version: 2,
            ..Sent::default()
        },
        Sent {
            to: (DestinationKind::Queue, "alerts"),
            ..Sent::default()
        },
        Sent {
            to: (DestinationKind::Topic, "alertz"),
            ..Sent::default()
        },
        Sent {
            reply_to: Some("3f0b6d2e-6c1e-4a53-9d0f-0d3a8d9f6c11"),
            ..Sent::default()
        },
        Sent {
            priority: MeshPriority::Low,
            ..Sent::default()
        },
        Sent {
            meta: Some(r#"{"a":1}"#),
            ..Sent::default()
        },
        Sent {
            body: b"hello ".to_vec(),
            ..Sent::default()
        },
    ];
    for (at, sent) in changed.iter().enumerate() {
        assert_ne!(sent.fingerprint(), first, "part {at}");
    }
}

#[test]
fn cm_050_a_zero_byte_in_a_part_is_refused() {
    let reference = Sent {
        to: (DestinationKind::Topic, "a\0b"),
        ..Sent::default()
    };
    assert_eq!(reference.preimage(), Err(ContainsNul("destination_ref")));
    let reply = Sent {
        reply_to: Some("\0"),
        ..Sent::default()
    };
    assert_eq!(reply.preimage(), Err(ContainsNul("reply_to_id")));
    // An escaped one in `meta` stays escaped, and the body is hashed.
    let escaped = Sent {
        meta: Some(r#"{"a":"\u0000"}"#),
        body: vec![0],
        ..Sent::default()
    };
    assert!(escaped.preimage().is_ok());
}

#[test]
fn hashes_are_64_hex_digits() {
    let hash = Sent::default().fingerprint();
    let text = hash.to_string();
    assert_eq!(RequestFingerprint::parse(&text.to_uppercase()), Ok(hash));
    for invalid in ["", &text[1..], &format!("{text}0"), &text.replace('7', "g")] {
        assert_eq!(RequestFingerprint::parse(invalid), Err(NotAHash));
    }
}
