//! Results that must equal the published vectors exactly.

use consign_transactions::document::{AtpDocument, REQUEST_BYTES_MAX, SignedText};
use consign_transactions::ids;
use consign_transactions::intent::{ScopeAction, SignedIntent};
use consign_transactions::key::{IdempotencyKey, RailReference};
use consign_transactions::money::{Cents, Currency};
use consign_transactions::receipt::{
    CompensationOutcome, CompensationReceipt, OriginalReceipt, ReceiptStep, SettlementReceipt,
};
use consign_transactions::state::AtpState;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use crate::published::{
    AUTHORIZE, AUTHORIZE_SIGNATURE, COMPENSATION, COMPENSATION_SIGNATURE, EDGES_HEX,
    EDGES_SIGNATURE, INTENT, INTENT_SIGNATURE, MANIFEST, MANIFEST_SIGNATURE, RECEIPT,
    RECEIPT_SIGNATURE, VOID, VOID_SIGNATURE,
};
use crate::{SITE, agent, at, by_site, keyring, now, read, sealed, site};

const KEY: &str = "9b1c6f0e-7f5e-4a53-9a6c-2f1d7a0f3b11";

fn intent() -> SignedIntent {
    SignedIntent::read(sealed(INTENT, &json!(INTENT_SIGNATURE))).unwrap()
}

fn key() -> IdempotencyKey {
    IdempotencyKey::new(KEY).unwrap()
}

fn cents(cents: u64) -> Cents {
    Cents::new(cents).unwrap()
}

/// Splits a signed document into the signed bytes and the signature object.
fn taken_apart(signed: &SignedText) -> (String, Value) {
    let document = read(&signed.text);
    assert_eq!(document.hash(), signed.hash);
    let unsigned = String::from_utf8(document.signed_bytes().to_vec()).unwrap();
    let mut all: Value = serde_json::from_str(&signed.text).unwrap();
    (unsigned, all["signature"].take())
}

#[test]
fn at_079_keys_have_the_published_ids() {
    assert_eq!(
        site().public().to_string(),
        "ed25519:0EqyMnQrtKs6E2i9RhXk5tAiSrcaAWuvhSCjMsl3hzc="
    );
    assert_eq!(site().public().id(), "ELpoLIrRNROXHotW");
    assert_eq!(agent().id(), "EyW4UMKHGRbq4gPw");
    assert_eq!(
        site().public().jwk_x(),
        "0EqyMnQrtKs6E2i9RhXk5tAiSrcaAWuvhSCjMsl3hzc"
    );
    let next = consign_transactions::document::SiteSigner::from_seed(&[0x33; 32]);
    assert_eq!(next.public().id(), "bI+GB9vocHemKimQ");
}

#[test]
fn at_079_at_005_v1_an_intent_with_more_than_ascii_verifies() {
    assert_eq!(INTENT.len(), 599);
    let intent = intent();
    assert_eq!(intent.document().signed_bytes(), INTENT.as_bytes());
    assert_eq!(
        intent.hash(),
        "sha256:bb0cbb929806030d51963b65c71fd23f2653a163a0b3b19f292648d176f2aab3"
    );
    assert_eq!(intent.check_signature(), Ok(()));

    assert_eq!(intent.intent_id, "int_abc");
    assert_eq!(intent.agent_id.as_deref(), Some("agent-7"));
    assert_eq!(intent.agent_key, agent());
    assert_eq!(intent.purpose, "Buy a book ≤ €30");
    assert_eq!(
        intent.scope.actions,
        [ScopeAction::Checkout, ScopeAction::Pay]
    );
    assert_eq!(intent.amount, Some(cents(1_500)));
    assert_eq!(intent.spend_cap.get(), cents(3_000));
    assert_eq!(intent.preconditions, ["int_x"]);
    assert_eq!(intent.expires_at, at("2026-05-25T12:10:00Z"));
    assert_eq!(intent.rail.unwrap().payment_method.as_deref(), Some("pm_1"));
}

#[test]
fn at_079_v2_an_authorize_body_verifies() {
    assert_eq!(AUTHORIZE.len(), 36);
    let body = sealed(AUTHORIZE, &json!(AUTHORIZE_SIGNATURE));
    assert!(body.is_signed_by(&agent()));
    assert_eq!(intent().check_authorization(&body), Ok(()));
    assert!(
        !sealed(
            r#"{"intent_id":"int_abc","nonce":"n2"}"#,
            &json!(AUTHORIZE_SIGNATURE)
        )
        .is_signed_by(&agent())
    );
}

#[test]
fn at_079_v3_references_and_hashes_are_derived() {
    let reference = key().rail_reference("int_abc");
    assert_eq!(
        reference.as_str(),
        "atp_5de39e4d754d223fead27829ab3e5f8e67578f64"
    );
    assert_eq!(
        reference.refund(0),
        "atp_5de39e4d754d223fead27829ab3e5f8e67578f64_refund"
    );
    assert_eq!(
        key().hash(),
        "sha256:14651078437e93d496f2f8133751ff54a550ea05b14da5059c6d526cd34d29b4"
    );
    let body = format!(
        r#"{{ "intent_id": "int_abc", "idempotency_key": "{KEY}", "amount_cents": 1500 }}"#
    );
    let body = AtpDocument::read(body.as_bytes(), REQUEST_BYTES_MAX).unwrap();
    assert_eq!(
        body.fingerprint(),
        "sha256:c7eda0c016c0c7ff5528728361bf4501e64ac596a534c04b3663e71bfff2e792"
    );
}

fn settled() -> SignedText {
    let (started_at, ended_at) = (
        at("2026-05-25T12:00:02.000Z"),
        at("2026-05-25T12:00:05.000Z"),
    );
    let pay = ReceiptStep {
        seq: 1,
        action: ScopeAction::Pay.word(),
        state: "succeeded",
        attempts: 1,
        started_at,
        ended_at: Some(ended_at),
    };
    let settlement = SettlementReceipt {
        receipt_id: &ids::receipt(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
        transaction_id: &ids::transaction("00112233445566778899aabbccddeeff"),
        site_id: None,
        intent: &intent(),
        authorized_at: at("2026-05-25T12:00:01.000Z"),
        key: &key(),
        amount: cents(1_500),
        currency: Currency::EUR,
        summary: None,
        started_at,
        completed_at: ended_at,
        settled_at: at("2026-05-25T12:00:05.250Z"),
        steps: &[pay],
        rail: "stripe",
        payment_id: Some("pi_123"),
    };
    settlement.sign(&site())
}

#[test]
fn at_079_v4_a_receipt_is_built_and_signed() {
    assert_eq!(RECEIPT.len(), 1_138);
    let published = by_site(RECEIPT, RECEIPT_SIGNATURE);
    assert_eq!(
        published.hash(),
        "sha256:3b8b06075177090cd444bdebd7c234c730547d61df182418582e733c94a88038"
    );
    let signed = settled();
    let (unsigned, mut signature) = taken_apart(&signed);
    // The vector is older than the rule that a receipt states the signed amount; it differs in nothing else.
    let amount = r#""intent":{"amount_cents":1500,"authorized_at""#;
    assert_eq!(
        unsigned.replacen(amount, r#""intent":{"authorized_at""#, 1),
        RECEIPT
    );
    signature["value"].take();
    assert_eq!(
        signature,
        json!({
            "algorithm": "ed25519", "value": null, "key_id": "ELpoLIrRNROXHotW",
            "signed_at": "2026-05-25T12:00:05.250Z",
        })
    );
    for receipt in [&published, &read(&signed.text)] {
        let verification = keyring().verify(receipt, now());
        assert!(verification.ok, "{verification:?}");
    }
    // Neither the key nor any other secret is in it.
    assert!(!signed.text.contains(KEY));
}

#[test]
fn at_079_at_072_v5_a_compensation_names_what_it_undoes() {
    assert_eq!(COMPENSATION.len(), 783);
    let original = by_site(RECEIPT, RECEIPT_SIGNATURE);
    let compensation = CompensationReceipt {
        receipt_id: &ids::compensation(0xfedc_ba98_7654_3210_fedc_ba98_7654_3210),
        transaction_id: &ids::transaction("00112233445566778899aabbccddeeff"),
        site: SITE,
        intent_id: "int_abc",
        currency: Currency::EUR,
        original: Some(OriginalReceipt {
            receipt_id: "atp_rcpt_0123456789abcdef0123456789abcdef",
            receipt: &original,
        }),
        from: AtpState::Settled,
        reason: "user_cancelled",
        outcome: CompensationOutcome::Refunded {
            amount: cents(1_500),
            reference: &key().rail_reference("int_abc").refund(0),
            refund_id: Some("re_123"),
        },
        compensated_at: at("2026-05-25T13:00:00.000Z"),
        rail: "stripe",
        reference: &key().rail_reference("int_abc"),
        payment_id: Some("pi_123"),
        resolved_by: None,
    };
    let signed = compensation.sign(&site());
    let (unsigned, signature) = taken_apart(&signed);
    assert_eq!(unsigned, COMPENSATION);
    assert_eq!(signature["value"], COMPENSATION_SIGNATURE);
    assert_eq!(
        signed.hash,
        "sha256:f9fdda03251d2a3f8cc286fe16700f3d28b7de22101bbd2da7f5fbee807f849f"
    );
}

#[test]
fn at_079_v6_a_decline_ends_without_a_charge() {
    assert_eq!(VOID.len(), 584);
    let compensation = CompensationReceipt {
        receipt_id: &ids::compensation(1),
        transaction_id: &ids::transaction("00000000000000000000000000000002"),
        site: SITE,
        intent_id: "int_def",
        currency: Currency::EUR,
        original: None,
        from: AtpState::Executing,
        reason: "card_declined",
        outcome: CompensationOutcome::NotCharged,
        compensated_at: at("2026-05-25T12:00:03.000Z"),
        rail: "stripe",
        reference: &RailReference::stored("atp_x"),
        payment_id: Some("pi_124"),
        resolved_by: None,
    };
    let signed = compensation.sign(&site());
    let (unsigned, signature) = taken_apart(&signed);
    assert_eq!(unsigned, VOID);
    assert_eq!(signature["value"], VOID_SIGNATURE);
    assert_eq!(
        signed.hash,
        "sha256:062e6a5e23a586edd6224f79982f53593ced4b8cd035f4b79629d3402fb0527a"
    );
    assert!(keyring().verify(&read(&signed.text), now()).ok);
}

#[test]
fn at_079_v7_the_manifest_shows_the_key_and_bears_its_signature() {
    assert_eq!(MANIFEST.len(), 235);
    let text = keyring().manifest(&site());
    let manifest = read(&text);
    assert_eq!(manifest.signed_bytes(), MANIFEST.as_bytes());
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["signature"], format!("ed25519:{MANIFEST_SIGNATURE}"));
    assert!(manifest.is_signed_by(site().public()));

    assert_eq!(
        keyring().jwks(),
        [json!({
            "kty": "OKP", "crv": "Ed25519", "x": "0EqyMnQrtKs6E2i9RhXk5tAiSrcaAWuvhSCjMsl3hzc",
            "kid": "ELpoLIrRNROXHotW", "alg": "EdDSA", "use": "sig",
        })]
    );
    assert_eq!(
        keyring().document()["keys"][0]["public_key"],
        all["public_key"]
    );
}

#[test]
fn at_079_v8_the_edges_of_canonical_json_are_signed_alike() {
    let text = "{\"€\":\"Euro Sign\",\"\\r\":\"Carriage Return\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\",\
        \"1\":\"One\",\"😀\":\"Emoji: Grinning Face\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\
        \"n\":[333333333.33333329,1e30,4.50,2e-3,1e-27,-0.0,1e21,100],\"s\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    let document = sealed(text, &json!(EDGES_SIGNATURE));
    assert_eq!(HEXLOWER.encode(document.signed_bytes()), EDGES_HEX);
    assert_eq!(
        document.hash(),
        "sha256:19360dd47faa9d99a2767e50063ffd5e4831d0be5f906c35c8b628b02f45e809"
    );
    assert!(document.is_signed_by(site().public()));
}
