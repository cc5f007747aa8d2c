//! Tests of whole decisions. The common suite of the stores tests how they execute decisions.

mod clock;
mod edges;
mod recipients;
mod steps;

use super::{Cx, Decision, Sweeps, View, Write, decide};
use crate::command::{Audience, Claim, Command, NewIntent};
use crate::error::Refusal;
use crate::fact::Fact;
use crate::ids::{DAY_US, Entropy, IntentId, Micros, SECOND_US, Seq, Token};
use crate::intent::{Intent, Shelf, Ties};
use crate::profile::{Face, ProfileId};
use crate::state::{Cause, State};

const NOW: Micros = Micros(1_700_000_000_000_000);
const LEASE_US: i64 = 60 * SECOND_US;
const TOKEN: Token = Token([4; 16]);

/// A row in the given state at [`NOW`], leased for a minute to alice if that state is a lease.
fn row(profile: ProfileId, state: State) -> Intent {
    let held = state == State::Dispatched;
    let mut row = Intent {
        seq: Seq(1),
        id: IntentId([1; 16]),
        profile,
        namespace: "default".to_owned(),
        goal: "greet".to_owned(),
        owner: "alice".to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: 100,
        payload: "{}".to_owned(),
        ties: Ties::default(),
        traceparent: None,
        attempts: u32::from(held),
        attempts_max: 3,
        backoff_us: 5 * SECOND_US,
        created_at: NOW,
        run_at: NOW,
        expires_at: NOW.plus(DAY_US),
        state,
        cause: Cause::None,
        shelf: Shelf::Ready,
        wake_at: NOW,
        holder: held.then(|| "alice".to_owned()),
        token: held.then_some(TOKEN),
        claimed_at: held.then_some(NOW),
        lease_until: held.then(|| NOW.plus(LEASE_US)),
        settled_at: profile.profile().is_terminal(state).then_some(NOW),
        last_error: None,
        result: None,
        last_fact: None,
        worker: None,
    };
    row.reshelve(NOW);
    row
}

fn item(profile: ProfileId) -> NewIntent {
    NewIntent {
        profile,
        namespace: "default".to_owned(),
        goal: "greet".to_owned(),
        owner: "alice".to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: 100,
        payload: "{}".to_owned(),
        ties: Ties::default(),
        unless: None,
        traceparent: None,
        delay_us: 0,
        ttl_us: DAY_US,
        attempts_max: 3,
        backoff_us: SECOND_US,
        once: None,
    }
}

fn claim(face: Face, max: u32) -> Claim {
    Claim {
        face,
        namespace: "default".to_owned(),
        goal: None,
        holder: "alice".to_owned(),
        audience: Audience::Caller,
        worker_id: None,
        capabilities: Vec::new(),
        max,
        lease_us: LEASE_US,
        grant: None,
    }
}

/// Decides over these rows at this instant, always with the same entropy.
fn decided(rows: &[Intent], command: &Command, now: Micros) -> Result<Decision, Refusal> {
    let view = View {
        intents: rows.to_vec(),
        ..View::default()
    };
    let (mut entropy, mut last_seq, mut last_fact) = (Entropy::new([9; 32]), 10, 0);
    let mut cx = Cx {
        now,
        wall: now,
        entropy: &mut entropy,
        last_seq: &mut last_seq,
        last_fact: &mut last_fact,
        sweeps: &mut Sweeps::default(),
    };
    decide(view, command, &mut cx)
}

fn facts(writes: &[Write]) -> Vec<&Fact> {
    writes
        .iter()
        .filter_map(|write| match write {
            Write::Fact(fact) => Some(fact),
            Write::New(_)
            | Write::Change { .. }
            | Write::Remove(_)
            | Write::RemoveFacts { .. }
            | Write::Once(_)
            | Write::Put(_)
            | Write::Delete(_) => None,
        })
        .collect()
}

/// The rows that were changed, oldest write first.
fn changed(writes: &[Write]) -> Vec<&Intent> {
    writes
        .iter()
        .filter_map(|write| match write {
            Write::Change { intent, .. } => Some(intent),
            Write::New(_)
            | Write::Remove(_)
            | Write::RemoveFacts { .. }
            | Write::Fact(_)
            | Write::Once(_)
            | Write::Put(_)
            | Write::Delete(_) => None,
        })
        .collect()
}
