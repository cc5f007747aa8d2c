//! Publishers and workers of the Intent Protocol with the main key, for one goal.

use std::time::Duration;

use consign_kernel::command::{
    Admit, Answer, Audience, Claim, Command, NewIntent, Settle, Settlement,
};
use consign_kernel::ids::{IntentId, SECOND_US};
use consign_kernel::intent::{Intent, Ties};
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::state::Verb;
use serde_json::Value;

use crate::world::{PATIENCE, World};

const NAMESPACE: &str = "images";
const GOAL: &str = "resize";
/// The key id of the operator, who owns all of them.
const MAIN: &str = "main";

/// An intent with three attempts.
pub(crate) fn wanted(payload: &Value) -> NewIntent {
    NewIntent {
        profile: ProfileId::Intent,
        namespace: NAMESPACE.to_owned(),
        goal: GOAL.to_owned(),
        owner: MAIN.to_owned(),
        public: false,
        target: None,
        capability: None,
        priority: limits::PRIORITY_DEFAULT,
        payload: payload.to_string(),
        traceparent: None,
        delay_us: 0,
        ttl_us: limits::INTENT_TTL_US,
        attempts_max: 3,
        backoff_us: 1_000,
        once: None,
        ties: Ties::default(),
        unless: None,
    }
}

pub(crate) async fn publish(world: &World, intent: NewIntent) -> IntentId {
    let items = vec![intent];
    let admit = Command::Admit(Admit { items, cap: None });
    let answer = world.engine.apply(None, admit).await.unwrap();
    let Answer::Admitted(admitted) = answer else {
        panic!("{answer:?}")
    };
    admitted[0].id
}

async fn claim(world: &World, max: u32, patience: Duration) -> Vec<Intent> {
    let claim = Claim {
        face: Face::Intent,
        namespace: NAMESPACE.to_owned(),
        goal: Some(GOAL.to_owned()),
        holder: MAIN.to_owned(),
        audience: Audience::Caller,
        worker_id: None,
        capabilities: Vec::new(),
        max,
        lease_us: 60 * SECOND_US,
        grant: None,
    };
    world.engine.claim(None, claim, patience).await.unwrap()
}

/// The intents that a worker can claim now.
pub(crate) async fn left(world: &World, max: u32) -> Vec<Intent> {
    claim(world, max, Duration::ZERO).await
}

/// Waits until a worker can claim an intent.
pub(crate) async fn claimed(world: &World) -> Intent {
    claim(world, 1, PATIENCE).await.remove(0)
}

pub(crate) async fn settle(world: &World, intent: &Intent, how: Settlement) {
    let settle = Settle {
        detail: None,
        id: intent.id,
        holder: MAIN.to_owned(),
        token: intent.token.unwrap(),
        how,
    };
    let settled = world.engine.apply(None, Command::Settle(settle)).await;
    settled.unwrap();
}

/// The details of all facts of one kind in the history of an intent.
pub(crate) async fn details(world: &World, intent: &Intent, verb: Verb) -> Vec<String> {
    let facts = world.engine.timeline(intent.seq).await.unwrap();
    let found = facts.into_iter().filter(|fact| fact.verb == verb);
    found.map(|fact| fact.detail.unwrap_or_default()).collect()
}
