//! Rows without payload and result, for lists, searches and counts.
//!
//! Invariant: an outline reads no payload and no result, so that a thousand outlines stay small whatever the jobs hold.

use consign_kernel::filter::Candidate;
use consign_kernel::ids::{FactSeq, IntentId, Micros, Seq};
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{Cause, State};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    pub seq: Seq,
    pub id: IntentId,
    pub profile: ProfileId,
    pub state: State,
    pub cause: Cause,
    pub run_at: Micros,
    pub attempts: u32,
    pub attempts_max: u32,
    pub priority: i32,
    pub created_at: Micros,
    pub claimed_at: Option<Micros>,
    pub settled_at: Option<Micros>,
    pub expires_at: Micros,
    pub last_fact: Option<FactSeq>,
    pub namespace: String,
    pub goal: String,
    /// Key id of the publisher.
    pub owner: String,
    pub target: Option<String>,
    pub capability: Option<String>,
    pub holder: Option<String>,
    pub worker: Option<String>,
    pub last_error: Option<String>,
}

impl Outline {
    /// What a filter sees of it.
    pub fn candidate<'a>(&'a self, payload: Option<&'a str>) -> Candidate<'a> {
        Candidate {
            id: self.id,
            profile: self.profile,
            state: self.state,
            cause: self.cause,
            namespace: &self.namespace,
            goal: &self.goal,
            owner: &self.owner,
            worker: self.worker.as_deref(),
            created_at: self.created_at,
            last_error: self.last_error.as_deref(),
            payload,
        }
    }
}

impl From<&Intent> for Outline {
    fn from(intent: &Intent) -> Self {
        Self {
            seq: intent.seq,
            id: intent.id,
            profile: intent.profile,
            state: intent.state,
            cause: intent.cause,
            run_at: intent.run_at,
            attempts: intent.attempts,
            attempts_max: intent.attempts_max,
            priority: intent.priority,
            created_at: intent.created_at,
            claimed_at: intent.claimed_at,
            settled_at: intent.settled_at,
            expires_at: intent.expires_at,
            last_fact: intent.last_fact,
            namespace: intent.namespace.clone(),
            goal: intent.goal.clone(),
            owner: intent.owner.clone(),
            target: intent.target.clone(),
            capability: intent.capability.clone(),
            holder: intent.holder.clone(),
            worker: intent.worker.clone(),
            last_error: intent.last_error.clone(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlinePage {
    pub outlines: Vec<Outline>,
    /// As in [`IntentPage`](crate::IntentPage).
    pub next: Option<Seq>,
}

/// The number of open jobs of a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCount {
    pub capability: Option<String>,
    pub queued: u64,
    /// Queued jobs that are not due yet.
    pub delayed: u64,
    pub running: u64,
}
