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
    }
}

#[test]
fn a_header_that_comes_twice_is_none() {
    let pair = |name: &str| (name.to_owned(), "value".to_owned());
    let headers = [pair("once"), pair("twice"), pair("twice")];
    let message = Message {
        headers: &headers,
        body: &[],
        now: consign_kernel::ids::Micros(0),
    };
    assert_eq!(message.header("once"), Some("value"));
    assert_eq!(message.header("twice"), None);
    assert_eq!(message.header("never"), None);
}
