//! The effect of each key standing on verification and on the published documents.

use serde_json::{Value, json};

use super::*;
use crate::document::{AtpDocument, SiteSigner, VERIFY_BYTES_MAX};

const SITE: &str = "https://shop.example";
const NOW: Micros = Micros(1_779_710_405_250_000);

fn signer(seed: u8) -> SiteSigner {
    SiteSigner::from_seed(&[seed; 32])
}

fn key(seed: u8, standing: KeyStanding) -> SiteKey {
    SiteKey {
        key: signer(seed).public().clone(),
        standing,
        valid_from: None,
    }
}

fn previous(valid_until: Micros) -> KeyStanding {
    KeyStanding::Previous {
        valid_until,
        reason: "scheduled".into(),
    }
}

fn revoked(revoked_at: Micros) -> KeyStanding {
    KeyStanding::Revoked {
        revoked_at,
        reason: "key_compromise".into(),
    }
}

/// A ring in which the key of seed 1 has the given standing.
fn ring(standing: KeyStanding) -> Keyring {
    let mut keys = vec![key(1, standing)];
    if keys[0].standing != KeyStanding::Current {
        keys.push(key(2, KeyStanding::Current));
    }
    Keyring::new(SITE, keys).unwrap()
}

fn signed(seed: u8, document: &Value) -> AtpDocument {
    let text = signer(seed).sign(document, NOW).text;
    AtpDocument::read(text.as_bytes(), VERIFY_BYTES_MAX).unwrap()
}

fn receipt(issued_at: Micros) -> Value {
    json!({"type": "atp.receipt.v1", "site": SITE, "issued_at": crate::instant::print(issued_at)})
}

#[track_caller]
fn check(standing: KeyStanding, issued_at: Micros, now: Micros, reason: Option<InvalidReason>) {
    let verification = ring(standing).verify(&signed(1, &receipt(issued_at)), now);
    assert_eq!(verification.reason, reason);
    assert_eq!(verification.ok, reason.is_none());
    assert_eq!(verification.trusted, reason.is_none());
    assert!(verification.signature_valid);
}

#[test]
fn a_ring_has_one_current_key_and_none_twice() {
    let new = |keys| Keyring::new(SITE, keys).map(|_| ());
    let current = || key(1, KeyStanding::Current);
    assert_eq!(new(vec![]), Err(KeyringError::NotOneCurrent));
    assert_eq!(
        new(vec![current(), key(2, KeyStanding::Current)]),
        Err(KeyringError::NotOneCurrent)
    );
    assert_eq!(
        new(vec![current(), key(1, KeyStanding::Next)]),
        Err(KeyringError::Repeated)
    );
    let next = || {
        vec![
            current(),
            key(2, KeyStanding::Next),
            key(3, KeyStanding::Next),
        ]
    };
    assert_eq!(new(next()), Err(KeyringError::SeveralNext));
    assert_eq!(new(next()[..2].to_vec()), Ok(()));
}

#[test]
fn what_a_replaced_key_signed_in_its_time_stays_good() {
    check(KeyStanding::Current, NOW, NOW, None);
    check(previous(NOW), NOW, NOW.plus(1 << 60), None);
    check(
        previous(NOW),
        NOW.plus(1_000),
        NOW.plus(1_000),
        Some(InvalidReason::KeyExpired),
    );
    let undated = signed(1, &json!({"type": "atp.receipt.v1", "site": SITE}));
    assert_eq!(
        ring(previous(NOW)).verify(&undated, NOW).reason,
        Some(InvalidReason::KeyExpired)
    );
    assert_eq!(
        ring(KeyStanding::Current).verify(&undated, NOW).reason,
        None
    );
}

#[test]
fn at_085_what_a_revoked_key_signed_is_reported_whatever_its_date() {
    check(
        revoked(NOW),
        NOW.plus(1_000),
        NOW.plus(2_000),
        Some(InvalidReason::KeyRevoked),
    );
    check(
        revoked(NOW),
        NOW.minus(1 << 50),
        NOW,
        Some(InvalidReason::KeyRevoked),
    );
    check(revoked(NOW), NOW.minus(2_000), NOW.minus(1_000), None);
}

#[test]
fn a_key_that_is_only_announced_signs_nothing_yet() {
    check(KeyStanding::Next, NOW, NOW, Some(InvalidReason::UnknownKey));
}

#[test]
fn a_key_vouches_for_nothing_before_it_was_made() {
    let mut young = key(1, KeyStanding::Current);
    young.valid_from = Some(NOW);
    let ring = Keyring::new(SITE, vec![young]).unwrap();
    assert!(ring.verify(&signed(1, &receipt(NOW)), NOW).ok);
    let early = ring.verify(&signed(1, &receipt(NOW.minus(1_000))), NOW);
    assert_eq!(early.reason, Some(InvalidReason::KeyExpired));
}

#[test]
fn a_receipt_of_another_site_is_not_ours_even_with_our_key() {
    let ring = ring(KeyStanding::Current);
    for site in [json!("https://other.example"), json!(null), json!(1)] {
        let mut foreign = receipt(NOW);
        foreign["site"] = site;
        let verification = ring.verify(&signed(1, &foreign), NOW);
        assert_eq!(verification.reason, Some(InvalidReason::SiteMismatch));
        assert!(!verification.ok && verification.trusted);
    }
}

#[test]
fn only_receipts_are_good_as_receipts() {
    let ring = ring(KeyStanding::Current);
    for (kind, reason) in [
        (json!("atp.receipt.v1"), None),
        (json!("atp.compensation.v1"), None),
        (json!("atp.intent.v1"), Some(InvalidReason::NotAReceipt)),
        (json!(null), Some(InvalidReason::NotAReceipt)),
    ] {
        let mut document = receipt(NOW);
        document["type"] = kind;
        let verification = ring.verify(&signed(1, &document), NOW);
        assert_eq!(verification.reason, reason);
        assert_eq!(verification.ok, reason.is_none());
        assert!(verification.signature_valid && verification.trusted);
    }
}

#[test]
fn the_short_form_is_tried_with_every_key() {
    let ring = ring(previous(NOW));
    let sign = |seed: u8| {
        let text = signer(seed).sign_as("signature", &receipt(NOW));
        AtpDocument::read(text.as_bytes(), VERIFY_BYTES_MAX).unwrap()
    };
    for (seed, status) in [(1, "previous"), (2, "current")] {
        let verification = ring.verify(&sign(seed), NOW);
        assert_eq!(
            (verification.ok, verification.key_status),
            (true, Some(status))
        );
    }
    assert_eq!(
        ring.verify(&sign(3), NOW).reason,
        Some(InvalidReason::SignatureMismatch)
    );
}

#[test]
fn a_stranger_is_unknown_with_or_without_bringing_his_key() {
    let ring = ring(KeyStanding::Current);
    let without = ring.verify(&signed(9, &receipt(NOW)), NOW);
    assert_eq!(
        (without.reason, without.signature_valid),
        (Some(InvalidReason::UnknownKey), false)
    );
    assert_eq!(without.key_id.as_deref(), Some(signer(9).public().id()));

    let mut text: Value = serde_json::from_slice(signed(9, &receipt(NOW)).sent()).unwrap();
    text["signature"]["public_key"] = signer(9).public().to_string().into();
    let read =
        |value: &Value| AtpDocument::read(value.to_string().as_bytes(), VERIFY_BYTES_MAX).unwrap();
    let with = ring.verify(&read(&text), NOW);
    assert_eq!(
        (with.reason, with.signature_valid),
        (Some(InvalidReason::UnknownKey), true)
    );
    // Only the id is missing: the embedded key still identifies the signer.
    text["signature"]["key_id"] = json!(null);
    assert_eq!(
        ring.verify(&read(&text), NOW).reason,
        Some(InvalidReason::UnknownKey)
    );
    text["issued_at"] = json!("2026-05-25T12:00:06.000Z");
    assert_eq!(
        ring.verify(&read(&text), NOW).reason,
        Some(InvalidReason::SignatureMismatch)
    );
}

#[test]
fn the_answer_has_the_members_of_the_protocol() {
    let document = signed(1, &receipt(NOW));
    let verification = ring(KeyStanding::Current).verify(&document, NOW.plus(61_900_000));
    let key_id = signer(1).public().id().to_owned();
    assert_eq!(
        serde_json::to_value(&verification).unwrap(),
        json!({
            "ok": true, "signature_valid": true, "trusted": true, "key_id": key_id, "key_status": "current",
            "issued_at": "2026-05-25T12:00:05.250Z", "age_seconds": 61, "kind": "atp.receipt.v1", "stored": false,
        })
    );
    let unsigned = AtpDocument::read(b"{}", 10).unwrap();
    assert_eq!(
        serde_json::to_value(ring(KeyStanding::Current).verify(&unsigned, NOW)).unwrap(),
        json!({
            "ok": false, "signature_valid": false, "trusted": false, "key_id": null, "key_status": null,
            "issued_at": null, "age_seconds": null, "kind": null, "stored": false, "reason": "no_signature",
        })
    );
}

#[test]
fn all_published_documents_show_the_same_keys() {
    let ring = Keyring::new(
        SITE,
        vec![
            key(1, previous(NOW)),
            key(2, KeyStanding::Current),
            key(3, KeyStanding::Next),
            key(4, revoked(NOW)),
        ],
    )
    .unwrap();
    let text = |seed: u8| signer(seed).public().to_string();
    let at = "2026-05-25T12:00:05.250Z";

    let manifest: Value = serde_json::from_str(&ring.manifest(&signer(2))).unwrap();
    assert_eq!(manifest["public_key"], text(2));
    assert_eq!(manifest["next_public_key"], text(3));
    assert_eq!(
        manifest["previous_keys"],
        json!([{"key": text(1), "valid_until": at, "reason": "scheduled"}]),
        "the revoked key is only in the revocations"
    );

    let revocations = ring.revocations(&signer(2));
    let mut document: Value = serde_json::from_str(&revocations).unwrap();
    assert_eq!(document["new_public_key"], text(2));
    assert_eq!(
        document["revoked"],
        json!([{"key": text(4), "revoked_at": at, "reason": "key_compromise"}])
    );
    let signature = document
        .as_object_mut()
        .unwrap()
        .remove("signature_by_new_key")
        .unwrap();
    document["signature"] = signature;
    let document = AtpDocument::read(document.to_string().as_bytes(), VERIFY_BYTES_MAX).unwrap();
    assert!(document.is_signed_by(signer(2).public()));

    let kids: Vec<Value> = ring.jwks().iter().map(|jwk| jwk["kid"].clone()).collect();
    assert_eq!(
        kids,
        [1, 2, 3].map(|seed| json!(signer(seed).public().id()))
    );

    let keys = ring.document();
    let shown = |index: usize| {
        let key = &keys["keys"][index];
        (
            key["public_key"].clone(),
            key["status"].clone(),
            key["valid_until"].clone(),
        )
    };
    assert_eq!(shown(0), (json!(text(1)), json!("previous"), json!(at)));
    assert_eq!(shown(1), (json!(text(2)), json!("current"), json!(null)));
    assert_eq!(shown(2), (json!(text(3)), json!("next"), json!(null)));
    assert_eq!(shown(3), (json!(text(4)), json!("revoked"), json!(at)));
    assert_eq!(keys["keys"][1]["key_id"], signer(2).public().id());
}

/// Every standing at once, with times that print exactly.
fn full_ring() -> Keyring {
    let keys = vec![
        key(1, previous(NOW)),
        key(2, revoked(NOW)),
        SiteKey {
            valid_from: Some(NOW),
            ..key(3, KeyStanding::Current)
        },
        key(4, KeyStanding::Next),
    ];
    Keyring::new(SITE, keys).unwrap()
}

#[test]
fn a_saved_list_of_keys_is_the_ring_that_was_published() {
    let ring = full_ring();
    let read = Keyring::read(&ring.document().to_string()).unwrap();
    assert_eq!(read.site(), SITE);
    let plain = |ring: &Keyring| -> Vec<_> {
        let of = |key: &SiteKey| (key.key.clone(), key.standing.word(), key.valid_from);
        ring.keys().iter().map(of).collect()
    };
    assert_eq!(plain(&read), plain(&ring));
    for (seed, reason) in [
        (1, None),
        (2, Some(InvalidReason::KeyRevoked)),
        (3, None),
        (4, Some(InvalidReason::UnknownKey)),
        (5, Some(InvalidReason::UnknownKey)),
    ] {
        let verification = read.verify(&signed(seed, &receipt(NOW)), NOW);
        assert_eq!(verification.reason, reason, "{seed}");
    }
}

#[test]
fn a_saved_manifest_counts_if_its_own_key_signed_it() {
    let manifest = full_ring().manifest(&signer(3));
    let read = Keyring::read(&manifest).unwrap();
    assert!(read.verify(&signed(3, &receipt(NOW)), NOW).ok);
    assert!(read.verify(&signed(1, &receipt(NOW)), NOW).ok);
    let late = receipt(Micros(NOW.0 + 1_000));
    assert_eq!(
        read.verify(&signed(1, &late), NOW).reason,
        Some(InvalidReason::KeyExpired)
    );
    let forged = manifest.replace("shop.example", "shop.invalid");
    assert_eq!(Keyring::read(&forged).unwrap_err(), PinError::Altered);
}

#[test]
fn one_key_is_a_ring_too() {
    let ring = Keyring::of_one(SITE, signer(1).public().clone());
    assert!(ring.verify(&signed(1, &receipt(NOW)), NOW).ok);
    assert!(!ring.verify(&signed(2, &receipt(NOW)), NOW).ok);
}

#[test]
fn what_holds_no_keys_is_refused_with_its_reason() {
    let list = |key: Value| json!({"site": SITE, "keys": [key]}).to_string();
    let public = signer(1).public().to_string();
    for (text, part) in [
        ("{}".to_owned(), "neither"),
        ("[]".to_owned(), "neither"),
        (
            list(json!({"public_key": "ed25519:x", "status": "current"})),
            "not a public key",
        ),
        (
            list(json!({"public_key": public, "status": "best"})),
            "not a key status",
        ),
        (
            list(json!({"public_key": public, "status": "next"})),
            "exactly one current",
        ),
        (
            list(json!({"public_key": public, "status": "revoked"})),
            "not a time",
        ),
        (
            list(json!({"public_key": public, "status": "current", "valid_from": "soon"})),
            "not a time",
        ),
        (
            format!(
                r#"{{"site":"a","site":"b","keys":[{{"public_key":"{public}","status":"current"}}]}}"#
            ),
            "neither",
        ),
    ] {
        let error = Keyring::read(&text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
