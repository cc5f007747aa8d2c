//! Agents that no peer knows, for a short time, so that repeated intents to them do not ask every peer each time.
//!
//! Invariant: an entry exists only if all active peers have answered. A new peer removes all entries.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long peers are not asked again for an agent that none of them knows.
pub(super) const UNKNOWN_FOR: Duration = Duration::from_secs(10);
/// When there are more, the expired ones are removed, and otherwise all.
const ENTRIES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct UnknownAgents(Mutex<HashMap<AskedAgent, Instant>>);

/// An agent, and the peer that was not asked because the intent came from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AskedAgent {
    pub(super) beam_id: String,
    pub(super) except: Option<String>,
}

impl UnknownAgents {
    pub(super) fn contains(&self, asked: &AskedAgent, now: Instant) -> bool {
        let until = self.lock().get(asked).copied();
        until.is_some_and(|until| now < until)
    }

    pub(super) fn insert(&self, asked: AskedAgent, now: Instant) {
        let mut entries = self.lock();
        if entries.len() >= ENTRIES_MAX {
            entries.retain(|_, until| now < *until);
        }
        if entries.len() >= ENTRIES_MAX {
            entries.clear();
        }
        entries.insert(asked, now + UNKNOWN_FOR);
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AskedAgent, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(beam_id: &str, except: Option<&str>) -> AskedAgent {
        AskedAgent {
            beam_id: beam_id.to_owned(),
            except: except.map(str::to_owned),
        }
    }

    #[test]
    fn an_entry_ends_and_counts_for_the_same_question_only() {
        let unknown = UnknownAgents::default();
        let now = Instant::now();
        unknown.insert(asked("a", None), now);
        assert!(unknown.contains(&asked("a", None), now));
        assert!(!unknown.contains(&asked("a", Some("https://b.example")), now));
        assert!(!unknown.contains(&asked("b", None), now));
        assert!(!unknown.contains(&asked("a", None), now + UNKNOWN_FOR));
        unknown.clear();
        assert!(!unknown.contains(&asked("a", None), now));
    }

    #[test]
    fn the_number_of_entries_is_bounded() {
        let unknown = UnknownAgents::default();
        let now = Instant::now();
        for number in 0..=ENTRIES_MAX {
            unknown.insert(asked(&number.to_string(), None), now);
        }
        assert_eq!(unknown.lock().len(), 1);
        let latest = asked(&ENTRIES_MAX.to_string(), None);
        assert!(unknown.contains(&latest, now));
    }
}
