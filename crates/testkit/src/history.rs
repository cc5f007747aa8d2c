//! The history of a client of a campaign: actions and outcomes, on disk before the client continues.
//!
//! Invariant: an intention is synced before its request is sent, together with the previous outcome, so a client
//! never acts on a response that is not on disk. The file contains everything that the server acknowledged and
//! everything that may have reached it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::shim::passed_s;

/// The state of the shim under the server, which contains how far time was advanced.
static FOLLOWED: OnceLock<File> = OnceLock::new();

/// From now on [`now_us`] returns the time of the server with this shim, in this process.
pub fn follow(state_file: &Path) -> io::Result<()> {
    // Only the first call counts; a process has one server at a time.
    let _ = FOLLOWED.set(File::open(state_file)?);
    Ok(())
}

/// Microseconds of the wall clock that the server reads.
pub fn now_us() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let passed_s = FOLLOWED
        .get()
        .and_then(|state| passed_s(state).ok())
        .unwrap_or(0);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX) + passed_s * 1_000_000
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// With this once-key, which is also the goal.
    Publish {
        key: String,
    },
    /// With this goal, or with any if it is empty.
    Claim {
        goal: String,
    },
    Extend {
        id: String,
        token: String,
        lease_s: i64,
    },
    Fulfil {
        id: String,
        token: String,
        result: String,
    },
    Fail {
        id: String,
        token: String,
    },
    /// A request with a token that must be refused; the path names the operation.
    Forge {
        id: String,
        path: String,
        token: String,
    },
}

/// The outcome for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientOutcome {
    /// Success, with the token of a claim, else empty.
    Yes {
        id: String,
        token: String,
    },
    /// There was nothing to claim.
    Nothing,
    Refused {
        status: u16,
    },
    /// No response, so the outcome is unknown.
    Lost,
}

impl ClientOutcome {
    /// The server responded with an error of its own.
    pub fn is_trouble(&self) -> bool {
        matches!(self, Self::Refused { status } if *status >= 500)
    }

    /// No response, or one that leaves the outcome open.
    pub fn is_unknown(&self) -> bool {
        *self == Self::Lost || self.is_trouble()
    }
}

/// One action with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    pub client: usize,
    pub round: u64,
    pub sent_us: i64,
    /// When the outcome was known.
    pub ended_us: i64,
    pub action: ClientAction,
    pub outcome: ClientOutcome,
}

/// The file of one client.
#[derive(Debug)]
pub struct History {
    file: File,
}

impl History {
    /// Opens the file to append to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file })
    }

    /// Writes the intention durably and returns the time of the request.
    pub fn intend(&mut self, round: u64, action: &ClientAction) -> io::Result<i64> {
        let sent_us = now_us();
        self.write(&json!({"round": round, "sent": sent_us, "act": action_to_json(action)}))?;
        self.file.sync_data()?;
        Ok(sent_us)
    }

    /// Writes the outcome of the last intention, which is durable before the next request.
    pub fn conclude(&mut self, outcome: &ClientOutcome) -> io::Result<()> {
        self.write(&json!({"heard": now_us(), "how": outcome_to_json(outcome)}))
    }

    fn write(&mut self, line: &Value) -> io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }

    /// Reads a history. An intention without an outcome was lost.
    pub fn read(path: &Path, client: usize) -> io::Result<Vec<HistoryEntry>> {
        let text = std::fs::read_to_string(path)?;
        let mut entries: Vec<HistoryEntry> = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line)?;
            let broken = || io::Error::new(io::ErrorKind::InvalidData, line.to_string());
            if let Some(action) = line.get("act") {
                entries.push(HistoryEntry {
                    client,
                    round: line["round"].as_u64().ok_or_else(broken)?,
                    sent_us: line["sent"].as_i64().ok_or_else(broken)?,
                    ended_us: i64::MAX,
                    action: action_from_json(action).ok_or_else(broken)?,
                    outcome: ClientOutcome::Lost,
                });
            } else {
                let last = entries.last_mut().ok_or_else(broken)?;
                last.ended_us = line["heard"].as_i64().ok_or_else(broken)?;
                last.outcome = outcome_from_json(&line["how"]).ok_or_else(broken)?;
            }
        }
        Ok(entries)
    }
}

fn action_to_json(action: &ClientAction) -> Value {
    match action {
        ClientAction::Publish { key } => json!({"do": "publish", "key": key}),
        ClientAction::Claim { goal } => json!({"do": "claim", "goal": goal}),
        ClientAction::Extend { id, token, lease_s } => {
            json!({"do": "extend", "id": id, "token": token, "lease_s": lease_s})
        }
        ClientAction::Fulfil { id, token, result } => {
            json!({"do": "fulfil", "id": id, "token": token, "result": result})
        }
        ClientAction::Fail { id, token } => json!({"do": "fail", "id": id, "token": token}),
        ClientAction::Forge { id, path, token } => {
            json!({"do": "forge", "id": id, "path": path, "token": token})
        }
    }
}

fn action_from_json(value: &Value) -> Option<ClientAction> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    Some(match value["do"].as_str()? {
        "publish" => ClientAction::Publish { key: text("key")? },
        "claim" => ClientAction::Claim {
            goal: text("goal")?,
        },
        "extend" => ClientAction::Extend {
            id: text("id")?,
            token: text("token")?,
            lease_s: value["lease_s"].as_i64()?,
        },
        "fulfil" => ClientAction::Fulfil {
            id: text("id")?,
            token: text("token")?,
            result: text("result")?,
        },
        "fail" => ClientAction::Fail {
            id: text("id")?,
            token: text("token")?,
        },
        "forge" => ClientAction::Forge {
            id: text("id")?,
            path: text("path")?,
            token: text("token")?,
        },
        _ => return None,
    })
}

fn outcome_to_json(outcome: &ClientOutcome) -> Value {
    match outcome {
        ClientOutcome::Yes { id, token } => json!({"yes": id, "token": token}),
        ClientOutcome::Nothing => json!("nothing"),
        ClientOutcome::Refused { status } => json!({ "refused": status }),
        ClientOutcome::Lost => json!("lost"),
    }
}

fn outcome_from_json(value: &Value) -> Option<ClientOutcome> {
    if let Some(id) = value["yes"].as_str() {
        return Some(ClientOutcome::Yes {
            id: id.to_owned(),
            token: value["token"].as_str()?.to_owned(),
        });
    }
    if let Some(status) = value["refused"].as_u64() {
        let status = u16::try_from(status).ok()?;
        return Some(ClientOutcome::Refused { status });
    }
    match value.as_str()? {
        "nothing" => Some(ClientOutcome::Nothing),
        "lost" => Some(ClientOutcome::Lost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_reads_back_and_an_open_intention_counts_as_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client");
        let mut history = History::open(&path).unwrap();
        let publish = ClientAction::Publish {
            key: "k1".to_owned(),
        };
        let yes = ClientOutcome::Yes {
            id: "a".to_owned(),
            token: String::new(),
        };
        let sent_us = history.intend(3, &publish).unwrap();
        history.conclude(&yes).unwrap();
        let claim = ClientAction::Claim {
            goal: String::new(),
        };
        history.intend(3, &claim).unwrap();
        let entries = History::read(&path, 7).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].client, entries[0].round), (7, 3));
        assert_eq!((&entries[0].action, &entries[0].outcome), (&publish, &yes));
        assert!(entries[0].sent_us == sent_us && entries[0].ended_us >= sent_us);
        assert_eq!(entries[1].outcome, ClientOutcome::Lost);
    }
}
