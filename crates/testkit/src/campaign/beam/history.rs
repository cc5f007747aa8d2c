//! The history of a client of Beam: what it was about to do, and what came of it.
//!
//! Invariant: a record is written before its request is sent. It needs no sync, because the campaign outlives the server
//! and its simulated power failures.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::history::now_us;
use crate::process::Reply;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeamCall {
    /// The key is the nonce, the detail the recipient and the type.
    SendIntent,
    /// A recipient got an intent; the key is the nonce.
    Receive,
    /// A recipient sends a result; the key is the nonce, the detail the text of the frame.
    Answer,
    /// The key is the nonce, the detail the message.
    SendMessage,
    /// The key is the id of the message, the detail the response.
    Acknowledge,
}

impl BeamCall {
    const ALL: [Self; 5] = [
        Self::SendIntent,
        Self::Receive,
        Self::Answer,
        Self::SendMessage,
        Self::Acknowledge,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::SendIntent => "send-intent",
            Self::Receive => "receive",
            Self::Answer => "answer",
            Self::SendMessage => "send-message",
            Self::Acknowledge => "acknowledge",
        }
    }

    /// Whether the key is a nonce.
    pub(super) const fn has_nonce(self) -> bool {
        match self {
            Self::SendIntent | Self::Receive | Self::Answer | Self::SendMessage => true,
            Self::Acknowledge => false,
        }
    }
}

/// One call with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BeamEntry {
    pub(super) call: BeamCall,
    pub(super) key: String,
    pub(super) detail: String,
    pub(super) sent_us: i64,
    /// Status and body; `None` if there was no response, or none is expected.
    pub(super) reply: Option<(u16, String)>,
}

impl BeamEntry {
    pub(super) fn is(&self, call: BeamCall, status: u16) -> bool {
        self.call == call && self.status() == Some(status)
    }

    pub(super) fn status(&self) -> Option<u16> {
        self.reply.as_ref().map(|(status, _)| *status)
    }

    pub(super) fn body(&self) -> &str {
        self.reply.as_ref().map_or("", |(_, body)| body)
    }

    /// The server responded with an error of its own; offline recipients and timeouts are answers.
    pub(super) fn is_trouble(&self) -> bool {
        let code = self.json()["errorCode"].clone();
        self.status().is_some_and(|status| status >= 500)
            && !["OFFLINE", "TIMEOUT", "DELIVERY_FAILED"]
                .iter()
                .any(|known| code == *known)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap_or_default()
    }
}

/// The file of one client in one round.
#[derive(Debug)]
pub(super) struct BeamHistory {
    file: File,
}

impl BeamHistory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    pub(super) fn begin(&mut self, call: BeamCall, key: &str, detail: &str) -> io::Result<()> {
        let line = json!({"at": now_us(), "do": call.word(), "key": key, "detail": detail});
        self.write(&line)
    }

    /// The outcome of the last call.
    pub(super) fn end(&mut self, reply: &Reply) -> io::Result<()> {
        let line = json!({"at": now_us(), "status": reply.status, "body": reply.text()});
        self.write(&line)
    }

    fn write(&mut self, line: &Value) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }

    pub(super) fn read(path: &Path) -> io::Result<Vec<BeamEntry>> {
        let text = std::fs::read_to_string(path)?;
        let mut entries: Vec<BeamEntry> = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let broken = || io::Error::new(io::ErrorKind::InvalidData, line.to_string());
            let text = |name: &str| line[name].as_str().map(str::to_owned);
            if let Some(word) = line["do"].as_str() {
                let call = BeamCall::ALL.into_iter().find(|call| call.word() == word);
                entries.push(BeamEntry {
                    call: call.ok_or_else(broken)?,
                    key: text("key").ok_or_else(broken)?,
                    detail: text("detail").ok_or_else(broken)?,
                    sent_us: line["at"].as_i64().ok_or_else(broken)?,
                    reply: None,
                });
            } else {
                let status = line["status"]
                    .as_u64()
                    .and_then(|status| status.try_into().ok());
                let reply = status.zip(text("body")).ok_or_else(broken)?;
                entries.last_mut().ok_or_else(broken)?.reply = Some(reply);
            }
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_reply_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client");
        let mut history = BeamHistory::open(&path).unwrap();
        history
            .begin(BeamCall::SendIntent, "n-1", "to bob")
            .unwrap();
        let reply = Reply {
            status: 200,
            headers: Vec::new(),
            body: br#"{"success":true}"#.to_vec(),
        };
        history.end(&reply).unwrap();
        history.begin(BeamCall::Acknowledge, "id-1", "{}").unwrap();
        let entries = BeamHistory::read(&path).unwrap();
        assert_eq!(entries.len(), 2);
        assert!(entries[0].is(BeamCall::SendIntent, 200));
        assert_eq!(entries[0].json()["success"], true);
        assert_eq!(
            (entries[1].key.as_str(), &entries[1].reply),
            ("id-1", &None)
        );
    }
}
