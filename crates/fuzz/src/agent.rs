//! Documents of agents: only the signed document verifies, in any layout, and a parsed intent satisfies every rule of
//! its parser.
//!
//! Input: a document; or `@`, a position, a count and some bytes, for the signed intent with that many bytes replaced
//! there.

use consign_kernel::ids::Micros;
use consign_kernel::json::canonical;
use consign_kernel::receipt::Signer;
use consign_transactions::document::{
    AtpDocument, AtpPublicKey, REQUEST_BYTES_MAX, Signature, SiteSigner, VERIFY_BYTES_MAX,
};
use consign_transactions::ids;
use consign_transactions::intent::{EXECUTIONS_MAX, LIFE_MAX_US, PRECONDITIONS_MAX, SignedIntent};
use consign_transactions::key::IdempotencyKey;
use consign_transactions::keyring::{KeyStanding, Keyring, SiteKey};
use consign_transactions::money::Cents;
use consign_transactions::receipt::{ReceiptStep, SettlementReceipt};
use consign_transactions::request::{Authorize, Cancel, Compensate, Execute, Verify};

/// The only document that was signed with the agent's key; `seeds/atp_intent` begins with it.
const SIGNED: &[u8] = include_bytes!("../seeds/atp_intent/signed");

fn agent() -> AtpPublicKey {
    AtpPublicKey::from(Signer::from_seed(&[0x22; 32]).public().clone())
}

/// The target `atp_document`.
pub(crate) fn document(bytes: &[u8]) {
    with_edits(bytes, |bytes| {
        let Ok(document) = AtpDocument::read(bytes, VERIFY_BYTES_MAX) else {
            return;
        };
        assert_eq!(document.sent(), bytes);
        reads_again(&document);
        keyed(bytes, &document);
        if document.is_signed_by(&agent()) {
            let form = canonical(bytes).expect("a document has a canonical form");
            assert_eq!(form, canonical(SIGNED).expect("a document of ours"));
        }
        // None of these may panic, whatever the members are.
        let _ = Authorize::read(&document);
        let _ = Execute::read(&document);
        let _ = Compensate::read(&document);
        let _ = Cancel::read(&document);
        let _ = Verify::read(&document);
    });
}

/// The target `atp_intent`.
pub(crate) fn intent(bytes: &[u8]) {
    with_edits(bytes, |bytes| {
        let read = AtpDocument::read(bytes, REQUEST_BYTES_MAX).and_then(SignedIntent::read);
        let Ok(intent) = read else {
            return;
        };
        keeps_its_rules(&intent);
        let is_agents = intent.agent_key == agent() && intent.check_signature().is_ok();
        if is_agents {
            let form = canonical(bytes).expect("a document has a canonical form");
            assert_eq!(form, canonical(SIGNED).expect("a document of ours"));
        }
        has_a_receipt(&intent);
    });
}

fn with_edits(bytes: &[u8], check: impl Fn(&[u8])) {
    if let [b'@', high, low, cut, put_in @ ..] = bytes {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % SIGNED.len();
        let (before, after) = SIGNED.split_at(at);
        let after = &after[usize::from(*cut).min(after.len())..];
        check(&[before, put_in, after].concat());
    } else {
        check(bytes);
    }
}

/// The signed form is canonical and contains no signature.
fn reads_again(document: &AtpDocument) {
    let signed = document.signed_bytes();
    // The canonical form of 1e20 is an integer that is refused, as documented.
    let Ok(again) = AtpDocument::read(signed, usize::MAX) else {
        return;
    };
    assert_eq!(again.signed_bytes(), signed, "not its own fixed point");
    assert_eq!(again.hash(), document.hash());
    assert_eq!(*again.signature(), Signature::Missing);
}

/// A fingerprint covers everything except the idempotency key.
fn keyed(bytes: &[u8], document: &AtpDocument) {
    if document.get("idempotency_key").is_some() {
        return;
    }
    let inner = &bytes.trim_ascii_start()[1..];
    let is_empty = inner.trim_ascii() == b"}";
    let comma: &[u8] = if is_empty { b"" } else { b"," };
    let with = |member: &[u8]| {
        let longer = [b"{", member, comma, inner].concat();
        AtpDocument::read(&longer, usize::MAX).map(|document| document.fingerprint())
    };
    let print = document.fingerprint();
    // A document of maximum depth; one more member at the top makes it no deeper.
    let keyed = with(br#""idempotency_key":"0123456789abcdef""#);
    assert_eq!(keyed.expect("one member more"), print);
    if let Ok(other) = with(br#""another_member_of_no_concern":1"#) {
        assert_ne!(other, print);
    }
}

fn keeps_its_rules(intent: &SignedIntent) {
    let is_short = |text: &str| (1..=128).contains(&text.chars().count());
    assert!(is_short(&intent.intent_id) && is_short(&intent.nonce));
    assert!(intent.intent_id.is_ascii());
    assert!(intent.expires_at > intent.issued_at);
    assert!(intent.expires_at <= intent.issued_at.plus(LIFE_MAX_US));
    assert!((1..=EXECUTIONS_MAX).contains(&intent.max_executions));
    assert!(intent.preconditions.len() <= PRECONDITIONS_MAX);
    assert!(!intent.preconditions.contains(&intent.intent_id));
    let actions = &intent.scope.actions;
    assert!(!actions.is_empty());
    for (index, action) in actions.iter().enumerate() {
        assert!(!actions[..index].contains(action), "an action twice");
    }
}

/// The receipt of any intent can be parsed and verifies.
fn has_a_receipt(intent: &SignedIntent) {
    let signer = SiteSigner::from_seed(&[0x11; 32]);
    let now = Micros(1_800_000_000_000_000);
    let step = ReceiptStep {
        seq: 1,
        action: "pay",
        state: "succeeded",
        attempts: 1,
        started_at: now,
        ended_at: Some(now),
    };
    let settlement = SettlementReceipt {
        receipt_id: &ids::receipt(1),
        transaction_id: &ids::transaction("00000000000000000000000000000001"),
        site_id: None,
        intent,
        authorized_at: now,
        key: &IdempotencyKey::new("0123456789abcdef").expect("16 characters"),
        amount: intent.amount.unwrap_or(Cents::ZERO),
        currency: intent.currency,
        summary: None,
        started_at: now,
        completed_at: now,
        settled_at: now,
        steps: &[step],
        rail: "null",
        payment_id: None,
    };
    let text = settlement.sign(&signer).text;
    let receipt =
        AtpDocument::read(text.as_bytes(), usize::MAX).expect("a receipt of ours is readable");
    let key = SiteKey {
        key: signer.public().clone(),
        standing: KeyStanding::Current,
        valid_from: None,
    };
    let keyring = Keyring::new(intent.site.clone(), vec![key]).expect("one current key");
    let verified = keyring.verify(&receipt, now);
    assert!(
        verified.ok,
        "a receipt of ours does not verify: {verified:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_is_what_the_agent_signed() {
        let document = AtpDocument::read(SIGNED, REQUEST_BYTES_MAX).unwrap();
        let intent = SignedIntent::read(document).unwrap();
        assert_eq!(intent.agent_key, agent());
        intent.check_signature().unwrap();
    }

    /// Edits at every position of the intent that leave it valid JSON, which a fuzzer rarely finds.
    #[test]
    fn no_single_edit_of_the_signed_intent_makes_another_that_its_agent_signed() {
        let put_in: [&[u8]; 5] = [b"", b" ", b"0", b"\"x\":1,", b"\\u0061"];
        for at in 0..u16::try_from(SIGNED.len()).unwrap() {
            for (cut, put_in) in (0..2).flat_map(|cut| put_in.map(|put_in| (cut, put_in))) {
                let [high, low] = at.to_be_bytes();
                let edit = [&[b'@', high, low, cut], put_in].concat();
                intent(&edit);
            }
        }
    }
}
