//! The history of a member of a mesh: what it was about to send, the answers, and what it received.
//!
//! Invariant: a record is written before its frame is sent. It needs no sync, because the campaign outlives the server and
//! its simulated power failures.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Value, json};

use crate::mesh_members::pushed_body;

/// A message that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SentMessage {
    /// The id that the client chose.
    pub(super) id: String,
    pub(super) body: String,
    /// The answer; `None` if there was none.
    pub(super) ack: Option<Value>,
}

/// A message that a client received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PushedMessage {
    pub(super) id: String,
    pub(super) body: String,
    /// The id that the broker assigned.
    pub(super) message_id: String,
}

/// What the file of one client contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberEntries {
    pub(super) sent: Vec<SentMessage>,
    pub(super) pushed: Vec<PushedMessage>,
}

impl SentMessage {
    pub(super) fn code(&self) -> Option<u64> {
        self.ack.as_ref()?["code"].as_u64()
    }

    /// The id that the broker assigned, if it accepted the message now or before.
    pub(super) fn message_id(&self) -> Option<&str> {
        let accepted = matches!(self.code(), Some(200..=299));
        self.ack.as_ref()?["messageId"]
            .as_str()
            .filter(|_| accepted)
    }
}

/// The file of one client in one round.
#[derive(Debug)]
pub(super) struct MemberHistory {
    file: File,
}

impl MemberHistory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    pub(super) fn send(&mut self, id: &str, body: &str) -> io::Result<()> {
        self.write(&json!({"send": id, "body": body}))
    }

    /// The answer to the last message.
    pub(super) fn ack(&mut self, ack: &Value) -> io::Result<()> {
        self.write(&json!({ "ack": ack }))
    }

    pub(super) fn push(&mut self, push: &Value) -> io::Result<()> {
        let line = json!({
            "push": push["client_message_id"],
            "body": pushed_body(push),
            "message_id": push["messageId"],
        });
        self.write(&line)
    }

    fn write(&mut self, line: &Value) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }

    pub(super) fn read(path: &Path) -> io::Result<MemberEntries> {
        let text = std::fs::read_to_string(path)?;
        let mut entries = MemberEntries::default();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let broken = || io::Error::new(io::ErrorKind::InvalidData, line.to_string());
            let text = |name: &str| line[name].as_str().map(str::to_owned);
            if let Some(id) = text("send") {
                let body = text("body").ok_or_else(broken)?;
                entries.sent.push(SentMessage {
                    id,
                    body,
                    ack: None,
                });
            } else if line["ack"].is_object() {
                entries.sent.last_mut().ok_or_else(broken)?.ack = Some(line["ack"].clone());
            } else {
                // What the broker left out is a finding, not a broken file.
                entries.pushed.push(PushedMessage {
                    id: text("push").unwrap_or_default(),
                    body: text("body").unwrap_or_default(),
                    message_id: text("message_id").unwrap_or_default(),
                });
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_with_their_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client");
        let mut history = MemberHistory::open(&path).unwrap();
        history.send("i-1", "hello").unwrap();
        let ack = json!({"code": 201, "messageId": "m-1"});
        history.ack(&ack).unwrap();
        history.send("i-2", "hello").unwrap();
        let push =
            json!({"client_message_id": "i-1", "messageId": "m-1", "ciphertext": "aGVsbG8="});
        history.push(&push).unwrap();
        let entries = MemberHistory::read(&path).unwrap();
        assert_eq!(entries.sent[0].message_id(), Some("m-1"));
        assert_eq!(entries.sent[1].ack, None);
        assert_eq!(entries.pushed[0].body, "hello");
    }
}
