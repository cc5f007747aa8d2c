//! A new message: its nonce is claimed and it is dispatched in one commit; then it is attempted.

use consign_engine::{Error, UnitOfWork};
use consign_kernel::command::{Begin, FirstStep, Hold, NewIntent, OnceGuard};
use consign_kernel::error::{Code, Refusal};
use consign_kernel::ids::{DAY_US, IntentId, Seq};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::plant::{self, Plant};
use consign_kernel::profile::ProfileId;
use consign_kernel::state::Verb;
use sha2::{Digest as _, Sha256};

use super::attempt::{DeliveryOutcome, readable};
use super::message::{BusMessage, MessageContent};
use super::{ATTEMPT_LEASE_US, ATTEMPTS_MAX, NAMESPACE};
use crate::problem::BeamProblem;
use crate::service::Beam;
use crate::text::{BeamObject, BeamValue};

/// How long a nonce is known. A message that was neither delivered nor acknowledged may be older.
pub(crate) const NONCE_LIFETIME_US: i64 = 90 * DAY_US;

/// The longest sender, recipient, intent, nonce or trace id.
pub const NAME_BYTES_MAX: usize = 255;
/// Payload and names of a message: a body of the directory without the other members of a frame and its signature.
const MESSAGE_BYTES_MAX: usize = 65_536 - 1_024;

/// A message to send.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub sender: String,
    pub recipient: String,
    pub intent: String,
    pub payload: BeamObject,
    pub priority: i32,
    pub trace_id: Option<String>,
    /// One is made if there is none.
    pub nonce: Option<String>,
}

impl NewMessage {
    /// Refuses names that the ledger could not hold as keys, and a message that no directory would accept over HTTP.
    pub fn check(&self) -> Result<(), BeamProblem> {
        let names = [
            ("from", Some(&self.sender)),
            ("to", Some(&self.recipient)),
            ("intent", Some(&self.intent)),
            ("nonce", self.nonce.as_ref()),
            ("trace_id", self.trace_id.as_ref()),
        ];
        let mut bytes = BeamValue::Object(self.payload.clone()).to_text().len();
        for (name, given) in names {
            let Some(given) = given else { continue };
            bytes += given.len();
            let problem = if given.len() > NAME_BYTES_MAX {
                format!("{name} is longer than {NAME_BYTES_MAX} bytes")
            } else if given.chars().any(char::is_control) {
                format!("{name} has a control character")
            } else {
                continue;
            };
            return Err(BeamProblem::new(Code::InvalidParam, problem));
        }
        if bytes > MESSAGE_BYTES_MAX {
            let text = format!("The message has {bytes} bytes; the limit is {MESSAGE_BYTES_MAX}");
            return Err(BeamProblem::new(Code::InvalidParam, text));
        }
        Ok(())
    }
}

/// The answer to a sender.
#[derive(Clone, Debug, PartialEq)]
pub enum SentMessage {
    New {
        message: BusMessage,
        outcome: DeliveryOutcome,
    },
    /// The same message was sent before; it is not delivered again.
    Known(BusMessage),
}

impl Beam {
    /// Whether the bus has the key of this sender. Messages of others are sent unsigned, and the directory refuses them.
    pub fn signs_for(&self, sender: &str) -> bool {
        self.inner.bus.identities.contains_key(sender)
    }

    /// Stores a message and attempts its delivery at once. Both are completed even if the caller stops waiting.
    pub async fn send_message(&self, new: NewMessage) -> Result<SentMessage, BeamProblem> {
        let NewMessage {
            sender,
            recipient,
            intent,
            payload,
            priority,
            trace_id,
            nonce,
        } = new;
        let nonce = nonce.unwrap_or_else(|| self.new_nonce());
        let fingerprint = content_fingerprint(&sender, &recipient, &intent, &payload);
        if plant::on(Plant::DuplicatesCounted) {
            self.inner.bus.rate.charge(&sender);
        }
        if let Some(used) = self.engine().first_use(nonce_key(&nonce)).await? {
            return match used.intent {
                Some(id) if used.fingerprint == fingerprint => self.known_message(id, &nonce).await,
                _ => Err(nonce_conflict(&nonce)),
            };
        }
        let rate = &self.inner.bus.rate;
        if !rate.charge(&sender) {
            let max = rate.per_minute();
            let text = format!("Rate limit exceeded for {sender} (max {max}/min)");
            return Err(BeamProblem::new(Code::RateLimitExceeded, text));
        }
        let content = MessageContent {
            nonce: nonce.clone(),
            payload,
            trace_id,
            metadata: None,
        };
        let item = NewIntent {
            profile: ProfileId::BeamBus,
            namespace: NAMESPACE.to_owned(),
            goal: intent,
            owner: recipient,
            public: true,
            target: None,
            capability: None,
            priority,
            payload: content.to_text(),
            traceparent: None,
            delay_us: 0,
            ttl_us: limits::RETENTION_US,
            attempts_max: ATTEMPTS_MAX,
            backoff_us: self.settings().bus.retry_second_us,
            once: Some(OnceGuard {
                key: nonce_key(&nonce),
                fingerprint,
                lifetime_us: NONCE_LIFETIME_US,
            }),
            ties: Ties {
                sender: Some(sender),
                ..Ties::default()
            },
            unless: None,
        };
        let beam = self.clone();
        let sent = tokio::spawn(async move { beam.begin_and_attempt(item, &nonce).await });
        sent.await.unwrap_or_else(|panicked| {
            tracing::error!(%panicked, "the delivery of a message panicked");
            let text = "Internal server error";
            Err(BeamProblem::new(Code::InternalError, text))
        })
    }

    async fn begin_and_attempt(
        &self,
        item: NewIntent,
        nonce: &str,
    ) -> Result<SentMessage, BeamProblem> {
        match self.begin_message(item).await {
            Ok(row) => {
                let message = readable(&row)?;
                let outcome = self.attempt_first(&row).await?;
                Ok(SentMessage::New { message, outcome })
            }
            // The same nonce was sent at the same time.
            Err(Error::Refused(Refusal::AlreadyBegun { id })) => {
                self.known_message(id, nonce).await
            }
            Err(Error::Refused(Refusal::OnceConflict { .. })) => Err(nonce_conflict(nonce)),
            Err(error) => Err(error.into()),
        }
    }

    async fn begin_message(&self, item: NewIntent) -> Result<Intent, Error> {
        let engine = self.engine();
        let mut unit = UnitOfWork::default();
        let begun = unit.begin(Begin {
            id: IntentId::new(engine.now(), Seq(0), engine.entropy().draw()),
            item,
            hold: Some(self.attempt_hold()),
            within: None,
            walk: vec![FirstStep {
                verb: Verb::Claim,
                detail: None,
            }],
            detail: None,
        });
        engine.commit(unit).await?.get(begun)
    }

    /// The lease of one attempt.
    pub(super) fn attempt_hold(&self) -> Hold {
        Hold {
            holder: self.holder(),
            lease_us: ATTEMPT_LEASE_US,
        }
    }

    async fn known_message(&self, id: IntentId, nonce: &str) -> Result<SentMessage, BeamProblem> {
        match self.engine().observe(id).await? {
            Some(row) => readable(&row).map(SentMessage::Known),
            // The message is no longer kept, but its nonce is.
            None => Err(nonce_conflict(nonce)),
        }
    }
}

fn nonce_conflict(nonce: &str) -> BeamProblem {
    let text = format!("Nonce {nonce} already belongs to a different message");
    BeamProblem::new(Code::NonceReuseConflict, text)
}

/// The once-key of a nonce on the bus. The directory has its own keys, with the same nonces.
pub fn nonce_key(nonce: &str) -> OnceKey {
    OnceKey {
        scope: Scope::BeamBusNonce,
        owner: String::new(),
        key: nonce.to_owned(),
    }
}

/// Two messages with one nonce are the same if they agree on sender, recipient, intent and the content of the payload. The
/// order of its keys does not count.
pub fn content_fingerprint(
    sender: &str,
    recipient: &str,
    intent: &str,
    payload: &BeamObject,
) -> [u8; 32] {
    let mut payload = BeamValue::Object(payload.clone()).sorted().to_text();
    if plant::on(Plant::PayloadUncompared) {
        payload.clear();
    }
    let mut hasher = Sha256::new();
    for part in [sender, recipient, intent, &payload] {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn print(sender: &str, recipient: &str, intent: &str, payload: &str) -> [u8; 32] {
        let BeamValue::Object(payload) = text::parse(payload.as_bytes()).unwrap() else {
            panic!("an object was parsed");
        };
        content_fingerprint(sender, recipient, intent, &payload)
    }

    #[test]
    fn a_message_that_no_directory_would_accept_is_refused() {
        let object = |length: usize| {
            let mut object = BeamObject::new();
            object.insert("text", "x".repeat(length).as_str());
            object
        };
        let message = |recipient: &str, length: usize| NewMessage {
            sender: "a".to_owned(),
            recipient: recipient.to_owned(),
            intent: "i".to_owned(),
            payload: object(length),
            priority: 0,
            trace_id: None,
            nonce: Some("n".to_owned()),
        };
        assert_eq!(message(&"b".repeat(NAME_BYTES_MAX), 64_000).check(), Ok(()));
        for (refused, expected) in [
            (message(&"b".repeat(256), 1), "to is longer than 255 bytes"),
            (message("b\n", 1), "to has a control character"),
            (
                message("b", MESSAGE_BYTES_MAX),
                "The message has 64527 bytes; the limit is 64512",
            ),
        ] {
            let problem = refused.check().unwrap_err();
            assert_eq!(problem.code, Code::InvalidParam);
            assert_eq!(problem.text, expected);
        }
    }

    #[test]
    fn be_024_be_025_a_fingerprint_ignores_the_order_of_keys_and_nothing_else() {
        let first = print("a", "b", "c", r#"{"x":[1,{"p":1,"q":2}],"y":2.0}"#);
        let same = print("a", "b", "c", r#"{"y":2,"x":[1,{"q":2,"p":1}]}"#);
        assert_eq!(first, same);
        for (sender, recipient, intent, payload) in [
            ("a2", "b", "c", r#"{"x":[1,{"p":1,"q":2}],"y":2}"#),
            ("a", "b2", "c", r#"{"x":[1,{"p":1,"q":2}],"y":2}"#),
            ("a", "b", "c2", r#"{"x":[1,{"p":1,"q":2}],"y":2}"#),
            ("ab", "", "c", r#"{"x":[1,{"p":1,"q":2}],"y":2}"#),
            ("a", "b", "c", r#"{"x":[{"p":1,"q":2},1],"y":2}"#),
            ("a", "b", "c", r#"{"x":[1,{"p":1,"q":2}],"y":"2"}"#),
            ("a", "b", "c", r#"{"x":[1,{"p":1,"q":2}]}"#),
        ] {
            assert_ne!(first, print(sender, recipient, intent, payload));
        }
    }
}
