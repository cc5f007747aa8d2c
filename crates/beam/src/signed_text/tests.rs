//! Texts and signatures that other implementations made.

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::frame::IntentFields;
use crate::text::{BeamObject, parse};

const ALICE: &str = "alice@acme.beam.directory";
const BOB: &str = "bob@acme.beam.directory";
const NEW_YEAR: &str = "2026-01-01T00:00:00.000Z";
const BOB_KEY: &str = "MCowBQYDK2VwAyEAKay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=";

fn alice() -> BeamPrivateKey {
    consign_testkit::plants::from_environment();
    BeamPrivateKey::parse("MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f")
        .unwrap()
}

fn bob() -> BeamPrivateKey {
    BeamPrivateKey::parse("MC4CAQAwBQYDK2VwBCIEICAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4/")
        .unwrap()
}

fn value(text: &str) -> BeamValue {
    parse(text.as_bytes()).unwrap()
}

fn object(text: &str) -> BeamObject {
    value(text).as_object().unwrap().clone()
}

/// An intent of Alice to Bob, signed as given.
fn intent(name: &str, payload: &str, number: u8, signature: &str) -> IntentFrame {
    let mut frame = IntentFrame::new(IntentFields {
        from: ALICE.to_owned(),
        to: BOB.to_owned(),
        intent: name.to_owned(),
        payload: object(payload),
        nonce: format!("00000000-0000-4000-8000-00000000000{number}"),
        timestamp: NEW_YEAR.to_owned(),
    });
    frame.set_signature(signature.to_owned());
    frame
}

#[track_caller]
fn check(signed: &BeamSignedText, text: &str, key: &BeamPrivateKey, signature: &str) {
    assert_eq!(signed.to_text(), text);
    assert_eq!(signed.sign(key), signature);
    assert!(signed.verify(&key.public_key(), signature));
}

struct IntentVector {
    intent: &'static str,
    payload: &'static str,
    number: u8,
    text: &'static str,
    bytes: usize,
    sha256: &'static str,
    signature: &'static str,
}

const INTENTS: [IntentVector; 3] = [
    IntentVector {
        intent: "conversation.message",
        payload: r#"{"message":"hello"}"#,
        number: 1,
        text: r#"{"type":"intent","from":"alice@acme.beam.directory","to":"bob@acme.beam.directory","intent":"conversation.message","payload":{"message":"hello"},"timestamp":"2026-01-01T00:00:00.000Z","nonce":"00000000-0000-4000-8000-000000000001"}"#,
        bytes: 231,
        sha256: "ffc7297e645ef4cc83e27a6c133511b567c3bb2c98e755532d422b155c0f64ef",
        signature: "ThgpWYKOzL2SmKefu4amCHQu7A/xM2PLPQHymkW55hJhhpDp6Ad2a43I8XpQwCXcH3vMnq/F4EhvUQJXkWhcBw==",
    },
    IntentVector {
        intent: "conversation.message",
        payload: r#"{"zeta":1,"alpha":{"b":[3,2,1],"a":null},"message":"Gr\u00fc\u00dfe \"Ω\" 🚀\n\u0001\/"}"#,
        number: 2,
        text: r#"{"type":"intent","from":"alice@acme.beam.directory","to":"bob@acme.beam.directory","intent":"conversation.message","payload":{"zeta":1,"alpha":{"b":[3,2,1],"a":null},"message":"Grüße \"Ω\" 🚀\n\u0001/"},"timestamp":"2026-01-01T00:00:00.000Z","nonce":"00000000-0000-4000-8000-000000000002"}"#,
        bytes: 294,
        sha256: "65aad5d711dfbec1701b8193b2c3ee1a55ab308a5c0eda254ab004ef7439dd85",
        signature: "p4anNsTmrPrduasgQJe5EUIkrmZ9CJcslfbC0U2wjqioDRxZ8o0CvsfHlW/CdCaZhUJotdA7eMoA74RsFblrDw==",
    },
    IntentVector {
        intent: "quote.request",
        payload: r#"{"sku":"INV-240","quantity":240,"shipTo":"Mannheim, DE","10":"ten","2":"two","price":184.0,"big":1e21,"small":1e-7,"neg":-0.0,"long":12345678901234567890,"sci":1.5e3}"#,
        number: 3,
        text: r#"{"type":"intent","from":"alice@acme.beam.directory","to":"bob@acme.beam.directory","intent":"quote.request","payload":{"2":"two","10":"ten","sku":"INV-240","quantity":240,"shipTo":"Mannheim, DE","price":184,"big":1e+21,"small":1e-7,"neg":0,"long":12345678901234567000,"sci":1500},"timestamp":"2026-01-01T00:00:00.000Z","nonce":"00000000-0000-4000-8000-000000000003"}"#,
        bytes: 366,
        sha256: "700d842cde1920137307a7b219102d45b955b881c98124be410b2d45f5b49acf",
        signature: "+/5/15MQWkplwIv3exghwkzd4y87sKNVv5W1hHJqXPqHH9d6x1JEYY7XMzEYmd1WGIMdkcLGhlIvFFmP1t00Bw==",
    },
];

#[test]
fn be_060_intents_have_the_bytes_and_signatures_of_the_published_sdk() {
    for vector in INTENTS {
        let frame = intent(
            vector.intent,
            vector.payload,
            vector.number,
            vector.signature,
        );
        let signed = BeamSignedText::intent(&frame);
        check(&signed, vector.text, &alice(), vector.signature);
        assert_eq!(vector.text.len(), vector.bytes);
        let hash = Sha256::digest(signed.to_text());
        assert_eq!(HEXLOWER.encode(&hash), vector.sha256);
        assert!(verify_intent(&frame, &alice().public_key()));
        assert!(!verify_intent(&frame, &bob().public_key()));
    }
}

#[test]
fn be_060_each_signed_field_of_an_intent_counts() {
    let vector = &INTENTS[0];
    let frame = intent(
        vector.intent,
        vector.payload,
        vector.number,
        vector.signature,
    );
    for (name, changed) in [
        ("from", "\"bob@acme.beam.directory\""),
        ("to", "\"alice@acme.beam.directory\""),
        ("intent", "\"conversation.massage\""),
        ("payload", r#"{"message":"hell"}"#),
        ("timestamp", "\"2026-01-01T00:00:00Z\""),
        ("nonce", "\"00000000-0000-4000-8000-000000000002\""),
        ("signature", "\"AAAA\""),
    ] {
        let mut fields = frame.fields().clone();
        fields.insert(name, value(changed));
        let changed = IntentFrame::parse(fields.into()).unwrap();
        assert!(!verify_intent(&changed, &alice().public_key()), "{name}");
    }
    let mut fields = frame.fields().clone();
    fields.insert("v", "2");
    fields.insert("relayHint", value(r#"{"route":"direct-http"}"#));
    let extended = IntentFrame::parse(fields.clone().into()).unwrap();
    assert!(verify_intent(&extended, &alice().public_key()));
    fields.remove("signature");
    let unsigned = IntentFrame::parse(fields.into()).unwrap();
    assert!(!verify_intent(&unsigned, &alice().public_key()));
}

#[test]
fn be_067_params_are_signed_as_the_payload() {
    let vector = &INTENTS[1];
    let frame = intent(
        vector.intent,
        vector.payload,
        vector.number,
        vector.signature,
    );
    let mut fields = frame.fields().clone();
    let payload = fields.remove("payload").unwrap();
    fields.insert("params", payload);
    let alias = IntentFrame::parse(fields.into()).unwrap();
    assert!(verify_intent(&alias, &alice().public_key()));
}

#[test]
fn a_signature_of_the_escaped_text_is_accepted() {
    let vector = &INTENTS[1];
    let escaped =
        "mylTkTsrFr86htlafoX8oSaMux1qalejES/8H9LXD9DhUm4YLHOCvLMRbXN0Lcqyyqp4eBRZ3TOiqNH8sMeKCA==";
    let frame = intent(vector.intent, vector.payload, vector.number, escaped);
    assert!(verify_intent(&frame, &alice().public_key()));
    assert!(!verify_intent(&frame, &bob().public_key()));
    let signed = BeamSignedText::intent(&frame);
    assert!(!signed.verify(&alice().public_key(), escaped));
    let other = vector.payload.replace("Gr", "gr");
    let tampered = intent(vector.intent, &other, vector.number, escaped);
    assert!(!verify_intent(&tampered, &alice().public_key()));
}

#[test]
fn be_064_the_order_of_a_payload_counts_for_intents_and_not_for_results() {
    let vector = &INTENTS[1];
    let reordered =
        r#"{"message":"Grüße \"Ω\" 🚀\n\u0001/","zeta":1,"alpha":{"b":[3,2,1],"a":null}}"#;
    assert!(value(reordered).same_content(&value(vector.payload)));
    let frame = intent(
        vector.intent,
        vector.payload,
        vector.number,
        vector.signature,
    );
    assert!(verify_intent(&frame, &alice().public_key()));
    let frame = intent(vector.intent, reordered, vector.number, vector.signature);
    assert!(!verify_intent(&frame, &alice().public_key()));
    let own = BeamSignedText::intent(&frame).sign(&alice());
    let frame = intent(vector.intent, vector.payload, vector.number, &own);
    assert!(!verify_intent(&frame, &alice().public_key()));
    let inner = vector
        .payload
        .replace(r#""b":[3,2,1],"a":null"#, r#""a":null,"b":[3,2,1]"#);
    let frame = intent(vector.intent, &inner, vector.number, vector.signature);
    assert!(!verify_intent(&frame, &alice().public_key()));

    let result = |text: &str| ResultFrame::parse(value(text)).unwrap();
    let signed = format!(
        r#"{{"payload":{{"structured":{{"z":1,"a":2}},"message":"re: hello"}},"signature":"{R1_SIGNATURE}","v":"1","success":true,"timestamp":"2026-01-01T00:00:01.000Z","nonce":"00000000-0000-4000-8000-000000000001","latency":12.0}}"#
    );
    assert!(verify_result(&result(&signed), &bob().public_key()));
    // Arrays are not sorted, and unknown fields count.
    for (from, to) in [
        ("\"z\":1", "\"z\":2"),
        ("\"v\":\"1\"", "\"v\":\"1\",\"x\":1"),
    ] {
        let changed = signed.replace(from, to);
        assert_ne!(changed, signed);
        assert!(!verify_result(&result(&changed), &bob().public_key()));
    }
}

const R1_SIGNATURE: &str =
    "IP600+KiAGVNuRGPZhab5ZM36CgHrh7GaAALIHwJZmduqTC44Mq1/fSi8dgOxXZYAE9o5ZGHfzJcI7CBzVrDDg==";

#[test]
fn be_061_results_have_the_bytes_and_signatures_of_the_published_sdk() {
    let frame = r#"{"v":"1","success":true,"nonce":"00000000-0000-4000-8000-000000000001","timestamp":"2026-01-01T00:00:01.000Z","payload":{"message":"re: hello","structured":{"z":1,"a":2}},"latency":12}"#;
    let text = r#"{"latency":12,"nonce":"00000000-0000-4000-8000-000000000001","payload":{"message":"re: hello","structured":{"a":2,"z":1}},"success":true,"timestamp":"2026-01-01T00:00:01.000Z","v":"1"}"#;
    let mut frame = ResultFrame::parse(value(frame)).unwrap();
    check(&BeamSignedText::result(&frame), text, &bob(), R1_SIGNATURE);
    assert!(!verify_result(&frame, &bob().public_key()));
    frame.set_signature(R1_SIGNATURE);
    check(&BeamSignedText::result(&frame), text, &bob(), R1_SIGNATURE);
    assert!(verify_result(&frame, &bob().public_key()));
    assert!(!verify_result(&frame, &alice().public_key()));

    let frame = r#"{"v":"1","success":false,"nonce":"00000000-0000-4000-8000-000000000003","timestamp":"2026-01-01T00:00:01.000Z","error":"nope","errorCode":"OUT_OF_STOCK","latency":0}"#;
    let text = r#"{"error":"nope","errorCode":"OUT_OF_STOCK","latency":0,"nonce":"00000000-0000-4000-8000-000000000003","success":false,"timestamp":"2026-01-01T00:00:01.000Z","v":"1"}"#;
    let signature =
        "FzWw6+I46MnOE7cT0PzMannoxG6rElIJ3SKKK74ziWodH7PlmhXYOQWlEHDW3rQ8y3EmBhK4js211l6MtUObDw==";
    let frame = ResultFrame::parse(value(frame)).unwrap();
    check(&BeamSignedText::result(&frame), text, &bob(), signature);
}

#[test]
fn be_062_a_heartbeat_has_the_bytes_and_signature_of_the_published_sdk() {
    check(
        &BeamSignedText::heartbeat(ALICE, NEW_YEAR, "hb-1"),
        r#"{"type":"heartbeat","beamId":"alice@acme.beam.directory","timestamp":"2026-01-01T00:00:00.000Z","nonce":"hb-1"}"#,
        &alice(),
        "/uZaRr8uU1pd+9XMujj6jLf+JMTb9Q5Q+Fm5tSW3+pfnySVj+j6RKFHzP4EcbuhOkMgUNfmJ7esICOg6TPCBDg==",
    );
}

#[test]
fn be_062_a_rotation_has_the_bytes_and_signature_of_the_published_sdk() {
    check(
        &BeamSignedText::keys_rotate(ALICE, BOB_KEY, NEW_YEAR),
        r#"{"action":"keys.rotate","beamId":"alice@acme.beam.directory","newPublicKey":"MCowBQYDK2VwAyEAKay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=","timestamp":"2026-01-01T00:00:00.000Z"}"#,
        &alice(),
        "mE54z79yVCgcDC/mPmSsV7YW4pAlLY/68QbAztIYzCIsmsQPjGLtuiSm/WTtTY1Y+Mj4+fSwzz5EJhH2INZlBw==",
    );
}

#[test]
fn be_062_a_delegation_has_the_bytes_and_signature_of_the_published_sdk() {
    check(
        &BeamSignedText::delegation(ALICE, BOB, "*", 4_102_444_800_000.0),
        r#"{"type":"delegation","grantor_beam_id":"alice@acme.beam.directory","grantee_beam_id":"bob@acme.beam.directory","scope":"*","expires_at":4102444800000}"#,
        &alice(),
        "i8GKNfFa+8/T+Ull0gC9eb5PocH224fCWcQIMTw0YL59xX4u4Pi+Hyi1h8Etg/GcU3zbBXKCaJB8zOR0KMX2BA==",
    );
}

#[test]
fn texts_without_a_published_signature_have_their_documented_form() {
    let profile = SignedProfile {
        description: Some("Buys \"things\""),
        website: Some("https://acme.example"),
        ..SignedProfile::default()
    };
    for (signed, text) in [
        (
            BeamSignedText::keys_revoke(ALICE, BOB_KEY, NEW_YEAR),
            r#"{"action":"keys.revoke","beamId":"alice@acme.beam.directory","publicKey":"MCowBQYDK2VwAyEAKay64UG8yvCyLhqU000LxzYeUm0L/hLIl5S8kyKWbdc=","timestamp":"2026-01-01T00:00:00.000Z"}"#,
        ),
        (
            BeamSignedText::config(ALICE, NEW_YEAR),
            r#"{"action":"config","beamId":"alice@acme.beam.directory","timestamp":"2026-01-01T00:00:00.000Z"}"#,
        ),
        (
            BeamSignedText::visibility(ALICE, "public", NEW_YEAR),
            r#"{"beamId":"alice@acme.beam.directory","timestamp":"2026-01-01T00:00:00.000Z","visibility":"public"}"#,
        ),
        (
            BeamSignedText::profile_update(ALICE, &profile, NEW_YEAR, "n-1"),
            r#"{"type":"agent_profile_update","beamId":"alice@acme.beam.directory","profile":{"description":"Buys \"things\"","logo_url":null,"website":"https://acme.example"},"timestamp":"2026-01-01T00:00:00.000Z","nonce":"n-1"}"#,
        ),
        (
            BeamSignedText::delegation_revoke(ALICE, 12),
            r#"{"type":"delegation-revoke","grantor_beam_id":"alice@acme.beam.directory","delegation_id":12}"#,
        ),
    ] {
        assert_eq!(signed.to_text(), text);
        assert!(signed.verify(&alice().public_key(), &signed.sign(&alice())));
        assert!(!signed.verify(&bob().public_key(), &signed.sign(&alice())));
    }
}

/// Frames and keys that Beam publishes with its releases, as proof that later versions read them.
#[test]
fn be_063_frames_archived_with_releases_0_6_0_and_0_6_1_verify() {
    for (key, text) in [
        (
            "MCowBQYDK2VwAyEAQYvLymXtml/R0LTxPO7RlIZBV/WyfVi2RowyLoNwVuw=",
            r#"{"v":"1","intent":"quote.request","from":"procurement@acme.beam.directory","to":"partner-desk@northwind.beam.directory","payload":{"project":"Mannheim rooftop rollout","sku":"INV-240","quantity":240,"shipTo":"Mannheim, DE","neededBy":"2026-04-03","priority":"high"},"nonce":"compat-release-v0-6-0-intent","timestamp":"2026-03-30T15:00:00.000Z","relayHint":{"route":"direct-http","expectedOrg":"northwind"},"signature":"wvZ2iDZZ0mIxCUVjrUvSvGOnjFTrNYZptrZsD7ZIhrKlea2Galr6o+gMGDYrgw0IkcCLkNbG6O9LUxgbNxHADQ=="}"#,
        ),
        (
            "MCowBQYDK2VwAyEAgnPeLCoJLVtALBPMEGTYjw/oWoLbBVN0zrGsAulTEqE=",
            r#"{"v":"1","intent":"purchase.preflight","from":"partner-desk@northwind.beam.directory","to":"finance@acme.beam.directory","payload":{"requestNonce":"quote-request-v0-6-1","sku":"INV-240","quantity":240,"totalPriceEur":44160,"auditContext":{"supplier":"northwind","project":"Mannheim rooftop rollout"}},"nonce":"compat-release-v0-6-1-intent","timestamp":"2026-03-30T15:10:00.000Z","trace_id":"trace-release-v0-6-1","signature":"0vuSZGkg65R0nEXhCjY+i10p5tfMcoZErc0cxBSc8vd4GvE34j3VMWDhWEu8tLVeX/XTwqNI9o/TfCj76pesAQ=="}"#,
        ),
    ] {
        let frame = IntentFrame::parse(value(text)).unwrap();
        let key = BeamPublicKey::parse(key).unwrap();
        assert!(verify_intent(&frame, &key), "{frame:?}");
        let changed = IntentFrame::parse(value(&text.replace("240", "241"))).unwrap();
        assert!(!verify_intent(&changed, &key));
    }
    for (key, text) in [
        (
            "MCowBQYDK2VwAyEAxiVryjO8XPVaAJ7TD1WaM/n0g3NcfeHwl8+JYbOYL34=",
            r#"{"v":"1","success":true,"nonce":"compat-release-v0-6-0-intent","timestamp":"2026-03-30T15:00:02.000Z","payload":{"quotedUnitPriceEur":184,"totalPriceEur":44160,"supplier":"partner-desk@northwind.beam.directory","inventory":{"available":true,"confidence":"high","shipWindow":"Thu 08:00-12:00 CET"}},"latency":1820,"traceSummary":{"stages":["received","validated","dispatched","delivered","acked"],"retryCount":0},"signature":"uPYMRiDNi9irpkq//O0/9M7ZAzsrJq9UP4iYIg9bdoWRmJNTt+06RYLTF/UqyRO8AWz2YnPB8NMX5Sd7jvbSDA=="}"#,
        ),
        (
            "MCowBQYDK2VwAyEAkT4oIdxjMPpOBESxYQ4fwVgEt9q9TsYtnJ57+Oimib8=",
            r#"{"v":"1","success":true,"nonce":"compat-release-v0-6-1-intent","timestamp":"2026-03-30T15:10:01.000Z","payload":{"accepted":true,"acknowledgement":"accepted","terminal":false,"reviewedBy":"finance@acme.beam.directory","nextAction":"approval.pending"},"latency":640,"deliveryDisposition":{"meaning":"delivery accepted, terminal work still pending"},"signature":"CZ919/lWIx6Kx2ZKU8wWNdskXUw0OZWMS0zwrzMxYAUa2B4oIXToWuslxwzCaRdiqPLFZ5Ofra1ub9mWja00Aw=="}"#,
        ),
    ] {
        let frame = ResultFrame::parse(value(text)).unwrap();
        let key = BeamPublicKey::parse(key).unwrap();
        assert!(verify_result(&frame, &key), "{frame:?}");
        let changed = text
            .replace("traceSummary", "trace")
            .replace("pending\"", "\"");
        let changed = ResultFrame::parse(value(&changed)).unwrap();
        assert!(!verify_result(&changed, &key));
    }
}
