//! The `with` of a `core.send` step, which is validated when the configuration is loaded.

use super::template::With;
use crate::beam_name::is_beam_id;
use crate::scalar;

/// Keys of `with` that control a message and are not part of its payload.
pub const SEND_CONTROLS: [&str; 6] = ["from", "to", "intent", "payload", "until", "timeout"];

/// How long a step waits for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendUntil {
    /// The message is stored, and the first attempt of its delivery is over.
    Sent,
    Delivered,
    Acked,
}

impl SendUntil {
    pub const WRONG: &'static str = "`with.until` must be sent, delivered or acked";

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Sent, Self::Delivered, Self::Acked]
            .into_iter()
            .find(|one| one.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Acked => "acked",
        }
    }
}

/// What is wrong with the step, and how to correct it. Templates are checked when the step runs.
pub(super) fn check(with: &With) -> Result<(), String> {
    for key in ["from", "to", "intent"] {
        if !with.has(key) {
            return Err(format!(
                "core.send needs with.{key}; write with: {{from: …, to: …, intent: …}}"
            ));
        }
    }
    // A payload must not choose in whose name the bus signs.
    let from = with.literal("from");
    from.ok_or("with.from must be a Beam-ID and no template; write agent@org.beam.directory")?;
    for key in ["from", "to"] {
        if let Some(given) = with.literal(key).filter(|given| !is_beam_id(given)) {
            return Err(format!(
                "with.{key} `{given}` is not a Beam-ID; write agent@org.beam.directory"
            ));
        }
    }
    if with
        .literal("intent")
        .is_some_and(|one| one.trim().is_empty())
    {
        return Err("with.intent must be a text that is not empty".to_owned());
    }
    if let Some(until) = with.literal("until")
        && SendUntil::parse(until).is_none()
    {
        return Err(SendUntil::WRONG.to_owned());
    }
    if let Some(timeout) = with.literal("timeout") {
        scalar::duration(timeout).map_err(|error| format!("with.timeout: {error}"))?;
    }
    Ok(())
}
