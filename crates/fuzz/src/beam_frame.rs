//! Frames of Beam: a frame that was read is stored, relayed and read again without a change, and only the key that
//! signed it verifies it.

use consign_beam::bus::MessageContent;
use consign_beam::frame::{IntentFields, IntentFrame, ResultFields, ResultFrame};
use consign_beam::keys::{BeamPrivateKey, BeamPublicKey};
use consign_beam::relay::{StoredEnd, StoredHead};
use consign_beam::signed_text::{BeamSignedText, verify_intent, verify_result};
use consign_beam::text::{BeamObject, BeamValue, parse};
use consign_beam::timestamp;

/// The target `beam_frame`. Input: a text.
pub(crate) fn frame(bytes: &[u8]) {
    let Ok(value) = parse(bytes) else {
        return;
    };
    let stored = value.to_text();
    if let Some(content) = MessageContent::parse(&stored) {
        let printed = content.to_text();
        let again = MessageContent::parse(&printed).expect("a printed message is a message");
        assert_eq!(again.to_text(), printed);
    }
    match IntentFrame::parse(value.clone()) {
        Ok(frame) => intent_reads_again(&frame),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match ResultFrame::parse(value) {
        Ok(frame) => result_reads_again(&frame),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn intent_reads_again(frame: &IntentFrame) {
    for text in [frame.from(), frame.to(), frame.intent(), frame.nonce()] {
        assert!(!text.is_empty());
    }
    let text = frame.to_value().to_text();
    let again = IntentFrame::parse(value_of(&text)).expect("a printed frame is a frame");
    assert_eq!(again.to_value().to_text(), text);
    assert_eq!(again.signature(), frame.signature());
    let signed = BeamSignedText::intent(frame).to_text();
    assert_eq!(BeamSignedText::intent(&again).to_text(), signed);
    let known = frame.without_unknown_fields();
    assert_eq!(BeamSignedText::intent(&known).to_text(), signed);
    assert_eq!(known.signature(), frame.signature());
    let known = known.to_value();
    let fields = known.as_object().expect("a frame is an object");
    assert!(fields.len() <= 8, "an unknown field is relayed");
    let head = StoredHead::of(&text).expect("a stored frame is readable");
    assert_eq!(head.nonce, frame.nonce());
    assert_eq!(head.timestamp, frame.timestamp());
    if let Some(at) = timestamp::parse(frame.timestamp()) {
        let shown = timestamp::format(at);
        let rounded = at.0.div_euclid(1_000) * 1_000;
        let read = timestamp::parse(&shown).map(|at| at.0);
        assert!(read == Some(rounded) || rounded < 0, "{shown}");
    }
}

fn result_reads_again(frame: &ResultFrame) {
    assert!(!frame.nonce().is_empty());
    assert!(frame.latency().is_none_or(f64::is_finite));
    let text = frame.to_value().to_text();
    let again = ResultFrame::parse(value_of(&text)).expect("a printed frame is a frame");
    assert_eq!(again.to_value().to_text(), text);
    let signed = BeamSignedText::result(frame).to_text();
    assert_eq!(BeamSignedText::result(&again).to_text(), signed);
    let signed = value_of(&signed);
    assert!(signed.get("signature").is_none());
    assert!(signed.sorted() == signed);
    let end = StoredEnd::of(&text).expect("a stored result is readable");
    assert_eq!(end.error_code.as_deref(), frame.error_code());
    assert_eq!(end.latency, frame.latency());
}

/// The target `beam_signature`. Input: a position in two bytes, a change of the byte there, and a payload.
pub(crate) fn signature(bytes: &[u8]) {
    let [high, low, change, payload @ ..] = bytes else {
        return;
    };
    let Ok(BeamValue::Object(payload)) = parse(payload) else {
        return;
    };
    let at = usize::from(u16::from_be_bytes([*high, *low]));
    let key = BeamPrivateKey::from_seed(&[1; 32]);
    let stranger = BeamPrivateKey::from_seed(&[2; 32]).public_key();
    let keys = (&key, &stranger);
    intent_signature(&payload, at, *change, keys);
    result_signature(&payload, at, *change, keys);
}

fn intent_signature(
    payload: &BeamObject,
    at: usize,
    change: u8,
    (key, stranger): (&BeamPrivateKey, &BeamPublicKey),
) {
    let mut frame = IntentFrame::new(IntentFields {
        from: "alice@acme.beam.directory".to_owned(),
        to: "bob@acme.beam.directory".to_owned(),
        intent: "conversation.message".to_owned(),
        payload: payload.clone(),
        nonce: "nonce".to_owned(),
        timestamp: "2026-01-01T00:00:00.000Z".to_owned(),
    });
    let public = key.public_key();
    assert!(!verify_intent(&frame, &public), "without a signature");
    let signed = BeamSignedText::intent(&frame);
    frame.set_signature(signed.sign(key));
    let verifies = |frame: &IntentFrame| verify_intent(frame, &public);
    assert!(verifies(&frame));
    assert!(!verify_intent(&frame, stranger));
    let text = frame.to_value().to_text();
    let relayed = IntentFrame::parse(value_of(&text)).expect("a printed frame is a frame");
    assert!(verifies(&relayed), "{text}");
    let escaped = frame.to_value().to_ascii_text();
    let escaped = IntentFrame::parse(value_of(&escaped)).expect("a printed frame is a frame");
    assert!(verifies(&escaped));
    assert!(verifies(&frame.without_unknown_fields()));
    if let Some(changed) = changed(&text, at, change)
        && let Ok(changed) = IntentFrame::parse(changed)
        && changed.signature() == frame.signature()
    {
        let same = BeamSignedText::intent(&changed).to_text() == signed.to_text();
        assert_eq!(verifies(&changed), same, "{text}");
    }
}

fn result_signature(
    payload: &BeamObject,
    at: usize,
    change: u8,
    (key, stranger): (&BeamPrivateKey, &BeamPublicKey),
) {
    let mut frame = ResultFrame::new(ResultFields {
        success: true,
        nonce: "nonce",
        timestamp: "2026-01-01T00:00:00.000Z",
        payload: Some(payload.clone()),
        ..ResultFields::default()
    });
    let public = key.public_key();
    let signed = BeamSignedText::result(&frame);
    frame.set_signature(&signed.sign(key));
    let verifies = |frame: &ResultFrame| verify_result(frame, &public);
    assert!(verifies(&frame) && !verify_result(&frame, stranger));
    let text = frame.to_value().to_text();
    for value in [value_of(&text), value_of(&text).sorted()] {
        let relayed = ResultFrame::parse(value).expect("a printed frame is a frame");
        assert!(verifies(&relayed), "{text}");
    }
    if let Some(changed) = changed(&text, at, change)
        && let Ok(changed) = ResultFrame::parse(changed)
        && changed.signature() == frame.signature()
    {
        let same = BeamSignedText::result(&changed).to_text() == signed.to_text();
        assert_eq!(verifies(&changed), same, "{text}");
    }
}

/// The text with one byte changed, if it is JSON then.
fn changed(text: &str, at: usize, change: u8) -> Option<BeamValue> {
    let mut bytes = text.as_bytes().to_vec();
    let at = at % bytes.len();
    bytes[at] ^= change;
    parse(&bytes).ok()
}

fn value_of(text: &str) -> BeamValue {
    parse(text.as_bytes()).expect("printed text is JSON")
}
