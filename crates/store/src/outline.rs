//! Jobs without payload and result, for lists and counts.
//!
//! Invariant: an outline reads no payload and no result, so that a thousand outlines stay small whatever the jobs hold.

use consign_kernel::ids::{IntentId, Micros, Seq};
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
    pub created_at: Micros,
    pub claimed_at: Option<Micros>,
    pub settled_at: Option<Micros>,
    pub namespace: String,
    pub goal: String,
    pub capability: Option<String>,
    pub holder: Option<String>,
    pub last_error: Option<String>,
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
            created_at: intent.created_at,
            claimed_at: intent.claimed_at,
            settled_at: intent.settled_at,
            namespace: intent.namespace.clone(),
            goal: intent.goal.clone(),
            capability: intent.capability.clone(),
            holder: intent.holder.clone(),
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
