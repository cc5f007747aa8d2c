//! The audit log: what was done through the routes of operators, by whom and with what outcome.
//!
//! Invariant: an entry is written before the action, with the outcome `started`, and completed after it. So no action happens
//! without an entry, and an action that a crash cut off has one that says so. Entries contain no secret: ids, names and
//! counts only. Nothing changes or removes an entry before its end of life.

use std::sync::atomic::Ordering;

use consign_kernel::command::{Command, Forget};
use consign_kernel::ids::{DAY_US, Micros};
use consign_kernel::record::{Key, Kind};
use serde::{Deserialize, Serialize};

use crate::records::{Versioned, new_put};
use crate::{Engine, Error, Operator};

/// How many records a page reads at most, so that a rare filter does not read the whole log at once.
const EXAMINED_MAX: u32 = 2_000;
const PAGE: u32 = 200;
const PIECE_ROWS: u32 = 500;
/// The outcome of an entry whose action has not ended.
const STARTED: &str = "started";

/// One action of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The wall clock in microseconds.
    pub at: i64,
    /// `admin-token`, `user NAME` or `key ID`.
    pub actor: String,
    /// The address of the client.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// Noun and verb, as `key.create`.
    pub action: String,
    /// The id or the name of what it was done to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// `started`, `done`, or the code of the error.
    pub outcome: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
}

/// Which entries to list.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// The position that an earlier page ended at.
    pub after: String,
    pub limit: u32,
    pub actor: Option<String>,
    /// An action, or its noun.
    pub action: Option<String>,
    /// No entries from before this time.
    pub since: Option<Micros>,
}

/// Entries from the newest to the oldest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Each with its id.
    pub entries: Vec<(String, AuditEntry)>,
    /// Where the next page begins, if there may be one.
    pub next: Option<String>,
}

/// An entry whose action has not ended.
#[derive(Debug)]
#[must_use]
pub struct OpenAuditEntry {
    record: Versioned<AuditEntry>,
}

impl AuditFilter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let of_actor = self.actor.as_ref().is_none_or(|actor| {
            entry.actor == *actor
                || entry
                    .actor
                    .split_once(' ')
                    .is_some_and(|(_, name)| name == actor)
        });
        let of_action = self.action.as_ref().is_none_or(|action| {
            let rest = entry.action.strip_prefix(action.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        of_actor && of_action
    }
}

/// Names sort from the newest to the oldest, because records are listed by name. `count` keeps the order of entries of one
/// node at the same time.
fn entry_key(at: Micros, count: u32, entropy: u128) -> Key {
    let age = u64::MAX - u64::try_from(at.0).unwrap_or(0);
    let count = u32::MAX - count;
    Key {
        kind: Kind::AuditEntry,
        owner: String::new(),
        name: format!("{age:016x}{count:08x}{:08x}", entropy >> 96),
    }
}

impl Engine {
    /// Writes the entry of an action that is about to happen; its outcome is set here. It is kept for `retention_days`.
    ///
    /// An action that frees space must be possible on a full disk, so a failure is logged with the whole entry and is no
    /// error.
    pub async fn begin_audit(&self, mut entry: AuditEntry, retention_days: u32) -> OpenAuditEntry {
        entry.at = self.wall().0;
        STARTED.clone_into(&mut entry.outcome);
        let count = self.inner.audited.fetch_add(1, Ordering::Relaxed);
        let mut record = Versioned::new(
            entry_key(Micros(entry.at), count, self.entropy().draw()),
            entry,
        );
        record.expires_at = Some(self.now().plus(i64::from(retention_days) * DAY_US));
        match self.put_if_unchanged(record.put()).await {
            Ok(version) => record.version = version.unwrap_or_default(),
            Err(error) => {
                tracing::error!(%error, entry = ?record.value, "the audit log was not written");
            }
        }
        OpenAuditEntry { record }
    }

    /// Completes an entry with the outcome, and with the target if it is known now.
    pub async fn end_audit(&self, open: OpenAuditEntry, outcome: &str, target: Option<String>) {
        let OpenAuditEntry { mut record } = open;
        outcome.clone_into(&mut record.value.outcome);
        if let Some(target) = target {
            record.value.target = target;
        }
        let mut put = new_put(record.key.clone(), &record.value);
        put.expires_at = record.expires_at;
        if let Err(error) = self.apply(None, Command::Put(put)).await {
            tracing::error!(%error, entry = ?record.value, "the audit log was not written");
        }
    }

    /// A page of the log.
    pub async fn audit(&self, _: Operator, filter: &AuditFilter) -> Result<AuditPage, Error> {
        let mut page = AuditPage::default();
        let (mut after, mut examined) = (filter.after.clone(), 0);
        loop {
            let records = self.records(Kind::AuditEntry, "", &after, PAGE).await?;
            let is_last = records.len() < PAGE as usize;
            for record in records {
                after.clone_from(&record.key.name);
                let record: Versioned<AuditEntry> = Versioned::read(record)?;
                if filter.since.is_some_and(|since| record.value.at < since.0) {
                    return Ok(page);
                }
                if filter.takes(&record.value) {
                    page.entries.push((record.key.name, record.value));
                }
                if page.entries.len() >= filter.limit as usize {
                    page.next = Some(after);
                    return Ok(page);
                }
            }
            examined += PAGE;
            if is_last {
                return Ok(page);
            }
            if examined >= EXAMINED_MAX {
                page.next = Some(after);
                return Ok(page);
            }
        }
    }

    /// Removes entries at the end of their life.
    pub(crate) async fn forget_audit(&self) -> Result<u64, Error> {
        self.forget(|| Forget::Records {
            kind: Kind::AuditEntry,
            ahead_us: 0,
            limit: PIECE_ROWS,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_an_actor_or_an_action_or_its_noun() {
        let entry = AuditEntry {
            at: 1,
            actor: "user ann".to_owned(),
            address: String::new(),
            user_agent: String::new(),
            action: "key.create".to_owned(),
            target: String::new(),
            outcome: "done".to_owned(),
            request_id: String::new(),
        };
        let check = |actor: Option<&str>, action: Option<&str>, expected| {
            let filter = AuditFilter {
                actor: actor.map(str::to_owned),
                action: action.map(str::to_owned),
                ..AuditFilter::default()
            };
            assert_eq!(filter.takes(&entry), expected, "{actor:?} {action:?}");
        };
        check(None, None, true);
        check(Some("ann"), Some("key"), true);
        check(Some("user ann"), Some("key.create"), true);
        check(Some("an"), None, false);
        check(None, Some("ke"), false);
        check(None, Some("key.revoke"), false);
    }

    #[test]
    fn a_later_entry_comes_first() {
        let of = |at, count| entry_key(Micros(at), count, 0).name;
        assert!(of(2_000_000, 0) < of(1_000_000, 1));
        assert!(of(1_000_000, 1) < of(1_000_000, 0));
    }
}
