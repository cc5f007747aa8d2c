//! The rails against their real peers: mock servers of Stripe as processes, a site's endpoint, and peers that misbehave.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod endpoint;
mod process;
#[path = "../site/tool.rs"]
mod tool;

mod broken;
mod charges;
mod scripted;
mod site;
mod stripe;

use std::time::Duration;

use consign_kernel::ids::Micros;
use consign_transactions::intent::Capture;
use consign_transactions::key::IdempotencyKey;
use consign_transactions::money::{Cents, Currency};
use consign_transactions::rail::Charge;

/// More than a loaded machine needs; only calls that must never be answered wait for less.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// 15 euros for an agent's request with this key.
pub(crate) fn charge(key: &str, payment_method: &str) -> Charge {
    let key = IdempotencyKey::new(&format!("{key}-0123456789abcdef")).unwrap();
    Charge {
        intent_id: "int_abc".to_owned(),
        transaction_id: "atp_tx_00112233445566778899aabbccddeeff".to_owned(),
        reference: key.rail_reference("int_abc"),
        amount: Cents::new(1_500).unwrap(),
        currency: Currency::EUR,
        action: Some("pay".to_owned()),
        summary: Some("a book".to_owned()),
        payment_method: Some(payment_method.to_owned()),
        capture: Capture::Automatic,
        refunds_refused: 0,
    }
}

pub(crate) fn now() -> Micros {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Micros(i64::try_from(since.unwrap().as_micros()).unwrap())
}
