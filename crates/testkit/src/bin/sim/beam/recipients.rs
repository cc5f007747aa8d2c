//! The recipients: machines of their own, which keep what they got and did across restarts of the server.
//!
//! A recipient gives every delivery another result, so a nonce that was answered twice shows two results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_testkit::beam_agents::{result_message, result_text};
use consign_testkit::seeded_random::SeededRandom;
use consign_web::websocket::InMemoryClient;
use serde_json::Value;
use tokio::time::Instant;

use super::server::RESULT_TIMEOUT;

/// A failure that ends an intent for good.
const FINAL_FAILURE: &str = "OUT_OF_STOCK";

#[derive(Debug, Default)]
pub(crate) struct SimRecipient {
    pub(crate) client: Option<InMemoryClient>,
    pending: Vec<PendingResult>,
    deliveries: u32,
    /// Every result that was sent, by nonce.
    pub(crate) sent: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug)]
struct PendingResult {
    due: Instant,
    nonce: String,
    frame: String,
}

impl SimRecipient {
    /// The nonces of the intents that arrived.
    pub(crate) fn take_intents(&self) -> Vec<String> {
        let mut nonces = Vec::new();
        let Some(client) = &self.client else {
            return nonces;
        };
        while let Some(text) = client.take_text() {
            let message: Value = serde_json::from_str(&text).unwrap_or_default();
            if message["type"] == "intent" {
                let nonce = message["frame"]["nonce"].as_str();
                nonces.push(nonce.unwrap_or_default().to_owned());
            }
        }
        nonces
    }

    /// Works on an intent: at once, slowly, after the timeout, twice, or never.
    pub(crate) fn handle(&mut self, nonce: &str, random: &mut SeededRandom) {
        let slow = RESULT_TIMEOUT / 3;
        let late = RESULT_TIMEOUT * 2;
        match random.below(100) {
            0..40 => self.plan(nonce, None, Duration::ZERO),
            40..52 => self.plan(nonce, None, slow),
            52..64 => self.plan(nonce, None, late),
            64..78 => {
                self.plan(nonce, None, Duration::ZERO);
                let again = random.one_of(&[Duration::ZERO, Duration::from_millis(2), late]);
                self.plan(nonce, None, again);
            }
            78..90 => {
                self.plan(nonce, Some(FINAL_FAILURE), Duration::ZERO);
                if random.percent(50) {
                    let again = random.one_of(&[Duration::ZERO, slow, late]);
                    self.plan(nonce, None, again);
                }
            }
            _ => {}
        }
    }

    /// Answers at once.
    pub(crate) fn answer(&mut self, nonce: &str) {
        self.plan(nonce, None, Duration::ZERO);
    }

    fn plan(&mut self, nonce: &str, failure: Option<&str>, after: Duration) {
        self.deliveries += 1;
        let answer = format!("result {}", self.deliveries);
        self.pending.push(PendingResult {
            due: Instant::now() + after,
            nonce: nonce.to_owned(),
            frame: result_text(nonce, &answer, failure),
        });
    }

    /// Sends the results that are due; without a connection they wait for the next one.
    pub(crate) fn send_due(&mut self) {
        let Some(client) = &self.client else { return };
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|result| result.due <= now);
        self.pending = later;
        for PendingResult { nonce, frame, .. } in due {
            client.send_text(result_message(&frame));
            self.sent.entry(nonce).or_default().insert(frame);
        }
    }

    /// A result for an intent of another agent.
    pub(crate) fn forge(&self, nonce: &str) {
        if let Some(client) = &self.client {
            client.send_text(result_message(&result_text(nonce, "forged", None)));
        }
    }
}
