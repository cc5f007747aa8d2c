//! `consign message send --from FILE TO INTENT [PAYLOAD]`

use std::path::PathBuf;

use anyhow::Context;
use consign_beam::frame::{IntentFields, IntentFrame};
use consign_beam::signed_text::BeamSignedText;
use consign_beam::text::{self, BeamObject, BeamValue};
use serde_json::{Value, json};

use crate::commands::OutputArgs;
use crate::commands::agent;
use crate::commands::beam::{BeamIdentity, BeamLinkArgs, member};
use crate::failure::{Exit, Failure};
use crate::{input, out, render};

/// What the directory says about a message that the bus could not sign.
const UNSIGNED: &str = "Signature verification failed";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The recipient must allow it, see consign acl allow. GET /intents/catalog lists the types of intents and their
payloads. Exit code 1 means that the recipient reported a failure, or that the message is a dead letter.

The bus signs with the identities in the file that BEAM_BUS_IDENTITY_PATH of the server names:
{\"alice\": CONTENT OF alice.beam.json, ...}. The directory refuses messages of other senders.

Example:
  consign message send --from alice.beam.json bob@acme.beam.directory conversation.message \\
    '{\"message\":\"hello\"}'
  consign message send --from alice.beam.json bob@acme.beam.directory agent.ping --bus")]
pub(crate) struct Args {
    /// File of the sender's identity, which signs the intent
    #[arg(long, value_name = "FILE")]
    from: PathBuf,

    /// Beam-ID of the recipient
    to: String,

    /// Type of the intent
    intent: String,

    /// JSON object; @FILE reads a file, - reads standard input
    #[arg(value_name = "PAYLOAD", default_value = "{}")]
    payload: String,

    /// Send it over the message bus, which signs it and retries the delivery
    #[arg(long)]
    bus: bool,

    /// Nonce, to send the same message again without delivering it twice
    #[arg(long)]
    nonce: Option<String>,

    /// Messages with a higher priority are retried first
    #[arg(long, requires = "bus")]
    priority: Option<i32>,

    /// Text that the message keeps
    #[arg(long, value_name = "ID", requires = "bus")]
    trace_id: Option<String>,

    /// Print what would be sent, and send nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    link: BeamLinkArgs,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Exit> {
        let identity = BeamIdentity::load(&self.from)?;
        let payload = payload(&self.payload)?;
        let nonce = match &self.nonce {
            Some(nonce) => nonce.clone(),
            None => new_nonce()?,
        };
        if self.bus {
            let message = self.message(&identity, &payload, &nonce)?;
            if self.dry_run {
                return would_send(&message.to_string());
            }
            let sent = self.link.client()?.bus_send(&message).await?;
            return self.show_message(&sent);
        }
        let frame = self.frame(&identity, payload, nonce);
        let text = frame.to_value().to_text();
        if self.dry_run {
            return would_send(&text);
        }
        let result = self.link.client()?.beam_send(&text).await?;
        self.show_result(&result)
    }

    /// The signed frame of an intent.
    fn frame(&self, identity: &BeamIdentity, payload: BeamObject, nonce: String) -> IntentFrame {
        let mut frame = IntentFrame::new(IntentFields {
            from: identity.beam_id.to_string(),
            to: self.to.clone(),
            intent: self.intent.clone(),
            payload,
            nonce,
            timestamp: agent::now(),
        });
        let signature = BeamSignedText::intent(&frame).sign(identity.key());
        frame.set_signature(signature);
        frame
    }

    /// The body of a message for the bus.
    fn message(
        &self,
        identity: &BeamIdentity,
        payload: &BeamObject,
        nonce: &str,
    ) -> anyhow::Result<Value> {
        let payload: Value = serde_json::from_str(&BeamValue::Object(payload.clone()).to_text())?;
        let mut message = json!({
            "from": identity.beam_id.as_str(),
            "to": self.to,
            "intent": self.intent,
            "payload": payload,
            "nonce": nonce,
        });
        if let Some(priority) = self.priority {
            message["priority"] = json!(priority);
        }
        if let Some(trace_id) = &self.trace_id {
            message["trace_id"] = json!(trace_id);
        }
        Ok(message)
    }

    fn show_result(&self, result: &Value) -> anyhow::Result<Exit> {
        let is_success = result["success"] == true;
        if self.output.json {
            out::json(result)?;
        } else {
            out::data(&render::fields(&[
                ("success", Some(is_success.to_string())),
                ("nonce", member(result, "nonce")),
                ("payload", member(result, "payload")),
                ("error", member(result, "error")),
                ("error code", member(result, "errorCode")),
            ]))?;
        }
        Ok(if is_success { Exit::Done } else { Exit::Failed })
    }

    fn show_message(&self, sent: &Value) -> anyhow::Result<Exit> {
        if self.output.json {
            out::json(sent)?;
        } else {
            out::data(&render::fields(&[
                ("message id", member(sent, "message_id")),
                ("nonce", member(sent, "nonce")),
                ("status", member(sent, "status")),
                ("error", member(sent, "error")),
                ("error code", member(sent, "error_code")),
            ]))?;
        }
        if sent["error"] == UNSIGNED {
            out::note(
                "hint: the bus has no identity of this sender, or an old one; add it to the file that \
                 BEAM_BUS_IDENTITY_PATH of the server names, start the server again, and then use: \
                 consign message requeue",
            );
        }
        let is_dead = sent["status"] == "dead_letter" || sent["status"] == "failed";
        Ok(if is_dead { Exit::Failed } else { Exit::Done })
    }
}

fn would_send(text: &str) -> anyhow::Result<Exit> {
    out::data(text)?;
    out::note("nothing was sent");
    Ok(Exit::Done)
}

fn payload(argument: &str) -> anyhow::Result<BeamObject> {
    let given = input::json("the payload", argument)?;
    match text::parse(given.get().as_bytes()) {
        Ok(BeamValue::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::usage("the payload is not a JSON object").into()),
        Err(error) => Err(Failure::usage(format!("the payload cannot be sent: {error}")).into()),
    }
}

/// A random UUID.
fn new_nonce() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).context("no source of random numbers")?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_an_object() {
        let object = payload(r#"{"z":1,"a":184.0}"#).unwrap();
        assert_eq!(BeamValue::Object(object).to_text(), r#"{"z":1,"a":184}"#);
        for wrong in ["[1]", "null", "no json"] {
            assert!(payload(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nonces_are_random_uuids() {
        let nonce = new_nonce().unwrap();
        assert_eq!(nonce.len(), 36);
        assert_eq!(&nonce[14..15], "4");
        assert_ne!(nonce, new_nonce().unwrap());
    }
}
