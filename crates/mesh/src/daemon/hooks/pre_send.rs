//! `pre-send`: the last gate of a message, before its fingerprint is computed.
//!
//! Invariant: a message is sent unchanged only if the hook ended with 0 and printed nothing. A hook that fails, is late or
//! prints something else than an object refuses the message, so a broken gate lets nothing through.

use consign_kernel::json::Object;
use serde_json::{Map, Value, json};

use super::{HookKind, HookOrigin, Hooks};
use crate::ipc::{IpcRefusal, IpcSend};
use crate::limits::{FRAME_DEPTH_MAX, INLINE_BYTES_MAX};
use crate::meta::CanonicalMeta;
use crate::priority::MeshPriority;

/// What the hook decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreSendOutcome {
    Unchanged,
    Changed(PreSendChange),
    Rejected,
}

/// The members that the hook replaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreSendChange {
    pub message: Option<String>,
    pub priority: Option<MeshPriority>,
    pub meta: Option<CanonicalMeta>,
}

impl Hooks {
    /// Whether a `pre-send` hook is there; without one a caller need not build its event.
    pub fn has_pre_send(&self) -> bool {
        self.settings(HookKind::PreSend.as_str()).is_some()
    }

    /// Passes a message through the gate: the message to send, or the refusal of the caller.
    pub async fn pre_send(&self, send: IpcSend, to: &str) -> Result<IpcSend, IpcRefusal> {
        if !self.has_pre_send() {
            return Ok(send);
        }
        let event = json!({
            "to": to,
            "message": send.message,
            "priority": send.priority.as_str(),
            "meta": serde_json::from_str::<Value>(send.meta.as_str()).unwrap_or(Value::Null),
            "reply_to_id": send.reply_to_id,
        });
        let event = event.as_object().cloned().unwrap_or_default();
        match self.decide(&event).await {
            PreSendOutcome::Unchanged => Ok(send),
            PreSendOutcome::Changed(change) => Ok(change.apply(send)),
            PreSendOutcome::Rejected => Err(IpcRefusal::new(422, "rejected_by_hook")),
        }
    }

    async fn decide(&self, event: &Map<String, Value>) -> PreSendOutcome {
        let name = HookKind::PreSend.as_str();
        let Some(settings) = self.settings(name) else {
            return PreSendOutcome::Unchanged;
        };
        let place = self.0.send_places.clone().acquire_owned().await;
        let origin = HookOrigin::default();
        let (audit, end) = self.run(name, &settings, event, &origin).await;
        drop(place);
        self.record(&settings, &audit, &end);
        let outcome = if audit.exit != 0 || end.timed_out || end.stdout.is_cut() {
            PreSendOutcome::Rejected
        } else {
            self.outcome(&end.stdout.kept)
        };
        let run = super::HookRun { audit, reply: None };
        let _ = self.0.runs.send(run);
        outcome
    }

    fn outcome(&self, output: &[u8]) -> PreSendOutcome {
        let output = output.trim_ascii();
        if output.is_empty() {
            return PreSendOutcome::Unchanged;
        }
        if let Some(change) = PreSendChange::parse(output) {
            return PreSendOutcome::Changed(change);
        }
        let fields = json!({"hook": HookKind::PreSend.as_str()});
        self.0.log.warn("hook_output_invalid", &fields);
        PreSendOutcome::Rejected
    }
}

impl PreSendChange {
    /// `None` if it is no object, or a member could not be sent.
    fn parse(output: &[u8]) -> Option<Self> {
        let members = Object::parse(output, FRAME_DEPTH_MAX).ok()?;
        let text = |key: &str| match members.get(key).filter(|raw| !raw.is_null()) {
            None => Some(None),
            Some(raw) => Some(Some(raw.as_str()?.into_owned())),
        };
        let message = text("message")?;
        let is_valid = message
            .as_ref()
            .is_none_or(|message| (1..=INLINE_BYTES_MAX).contains(&message.len()));
        let priority = match text("priority")? {
            Some(word) => Some(MeshPriority::parse(&word)?),
            None => None,
        };
        let meta = match members.get("meta") {
            Some(meta) => Some(CanonicalMeta::parse(Some(meta.text())).ok()?),
            None => None,
        };
        is_valid.then_some(Self {
            message,
            priority,
            meta,
        })
    }

    fn apply(self, mut send: IpcSend) -> IpcSend {
        if let Some(message) = self.message {
            send.message = message;
        }
        if let Some(priority) = self.priority {
            send.priority = priority;
        }
        if let Some(meta) = self.meta {
            send.meta = meta;
        }
        send
    }
}
