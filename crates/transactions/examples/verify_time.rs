//! How long it takes to read and verify one receipt: `cargo run --release -p consign-transactions --example verify_time`.
//!
//! The median of rounds, because the machine has other things to do; it asserts nothing.

#![expect(clippy::print_stdout, reason = "an example that reports")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use consign_kernel::ids::Micros;
use consign_transactions::document::{Document, REQUEST_BYTES_MAX, SiteSigner, VERIFY_BYTES_MAX};
use consign_transactions::intent::Intent;
use consign_transactions::key::IdempotencyKey;
use consign_transactions::keyring::{Keyring, SiteKey, Standing};
use consign_transactions::money::Cents;
use consign_transactions::receipt::{Settlement, Step};
use consign_transactions::{ids, instant};

const ROUNDS: usize = 21;
const PER_ROUND: u32 = 200;
const SITE: &str = "https://shop.example";

fn main() {
    let signer = SiteSigner::from_seed(&[0x11; 32]);
    let now = instant::parse("2026-05-25T12:00:05.250Z").expect("a time");
    let receipt = receipt(&signer, now);
    let key = SiteKey {
        key: signer.public().clone(),
        standing: Standing::Current,
        valid_from: None,
    };
    let keyring = Keyring::new(SITE, vec![key]).expect("one current key");

    let read = || Document::read(receipt.as_bytes(), VERIFY_BYTES_MAX).expect("a document of ours");
    let document = read();
    assert!(keyring.verify(&document, now).ok, "a receipt of ours");
    println!("receipt of {} bytes", receipt.len());
    println!(
        "read             {:>8.1?}",
        median(|| read().signed_bytes().len())
    );
    println!(
        "verify           {:>8.1?}",
        median(|| keyring.verify(&document, now).ok)
    );
    println!(
        "read and verify  {:>8.1?}",
        median(|| keyring.verify(&read(), now).ok)
    );
}

fn receipt(signer: &SiteSigner, now: Micros) -> String {
    let agent = SiteSigner::from_seed(&[0x22; 32]);
    let intent = format!(
        r#"{{"type":"atp.intent.v1","intent_id":"int_abc","site":"{SITE}","agent_id":"agent-7","agent_key":"{}",
            "purpose":"Buy a book","scope":{{"actions":["checkout","pay"]}},"amount_cents":1500,"nonce":"n1",
            "issued_at":"2026-05-25T12:00:00.000Z","expires_at":"2026-05-25T12:10:00.000Z"}}"#,
        agent.public()
    );
    let intent = Document::read(intent.as_bytes(), REQUEST_BYTES_MAX).and_then(Intent::read);
    let intent = intent.expect("an intent that keeps the rules");
    let step = Step {
        seq: 1,
        action: "pay",
        state: "succeeded",
        attempts: 1,
        started_at: now,
        ended_at: Some(now),
    };
    let settlement = Settlement {
        receipt_id: &ids::receipt(1),
        transaction_id: &ids::transaction("00000000000000000000000000000001"),
        site_id: None,
        intent: &intent,
        authorized_at: now,
        key: &IdempotencyKey::new("9b1c6f0e-7f5e-4a53-9a6c-2f1d7a0f3b11").expect("36 characters"),
        amount: Cents::new(1_500).expect("a small amount"),
        currency: intent.currency,
        summary: None,
        started_at: now,
        completed_at: now,
        settled_at: now,
        steps: &[step],
        rail: "stripe",
        payment_id: Some("pi_123"),
    };
    settlement.sign(signer).text
}

fn median<T>(work: impl Fn() -> T) -> Duration {
    let mut rounds: Vec<Duration> = (0..ROUNDS).map(|_| round(&work)).collect();
    rounds.sort();
    rounds[ROUNDS / 2]
}

fn round<T>(work: &impl Fn() -> T) -> Duration {
    let start = Instant::now();
    for _ in 0..PER_ROUND {
        black_box(work());
    }
    start.elapsed() / PER_ROUND
}
