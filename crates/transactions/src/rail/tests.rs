//! What the tests of the rails share.

use super::*;

/// 15 euros by card.
pub(super) fn charge() -> Charge {
    Charge {
        intent_id: "int_abc".to_owned(),
        transaction_id: "atp_tx_00112233445566778899aabbccddeeff".to_owned(),
        reference: RailReference::stored("atp_5de39e4d754d223fead27829ab3e5f8e67578f64"),
        amount: Cents::new(1_500).unwrap(),
        currency: Currency::EUR,
        action: Some("pay".to_owned()),
        summary: None,
        payment_method: Some("pm_card_visa".to_owned()),
        capture: Capture::Automatic,
        refunds_refused: 0,
    }
}

#[test]
fn a_header_that_comes_twice_is_none() {
    let pair = |name: &str| (name.to_owned(), "value".to_owned());
    let headers = [pair("once"), pair("twice"), pair("twice")];
    let message = CallbackMessage {
        headers: &headers,
        body: &[],
        now: consign_kernel::ids::Micros(0),
    };
    assert_eq!(message.header("once"), Some("value"));
    assert_eq!(message.header("twice"), None);
    assert_eq!(message.header("never"), None);
}

#[test]
fn a_name_that_is_too_long_is_not_understood() {
    let (longest, longer) = ("é".repeat(NAME_CHARS_MAX), "x".repeat(NAME_CHARS_MAX + 1));
    let paid = RailReport::of(RailOutcome::Succeeded);
    assert_eq!(
        paid.clone().with_payment_id(&longest).payment_id,
        Some(longest.clone())
    );
    assert_eq!(
        paid.with_payment_id(&longer),
        RailReport::of(RailOutcome::Unknown)
    );
    let refund_id = Some(longest.clone());
    let done = RefundOutcome::Done {
        refund_id: refund_id.clone(),
    };
    assert_eq!(RefundOutcome::done(refund_id), done);
    assert_eq!(
        RefundOutcome::done(Some(longer.clone())),
        RefundOutcome::Unknown
    );
    let hint = CallbackHint::new(longest.clone(), Some(longer.clone())).unwrap();
    assert_eq!((hint.event_id, hint.about), (longest, None));
    let refused = CallbackHint::new(longer, None).unwrap_err();
    assert!(matches!(refused, Problem::InvalidRequest { .. }));
}
