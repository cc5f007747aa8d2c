//! The trace of an intent, from its facts.
//!
//! Ordering: stages are in the order in which they were stored. Their times may differ from that, because the first one has
//! the sender's.

use consign_engine::Error;
use consign_kernel::fact::Fact;
use consign_kernel::intent::Intent;
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{State, Verb};
use serde_json::{Value, json};

use crate::lifecycle::{self, is_terminal};
use crate::relay::{IntentRow, error_code, nonce_key, repeated_at};
use crate::service::Beam;
use crate::timestamp;

/// An intent or a message of the bus, and how it came to its state.
#[derive(Clone, Debug, PartialEq)]
pub struct IntentTrace {
    pub intent: IntentRow,
    pub stages: Vec<TraceStage>,
}

impl IntentTrace {
    fn is_of_one_moment(&self) -> bool {
        self.stages
            .last()
            .is_none_or(|last| last.state == self.intent.state)
    }
}

/// One step of an intent.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceStage {
    /// Grows with every stage. Stages that were not stored have numbers of zero and less.
    pub id: i64,
    pub state: State,
    pub timestamp: String,
    /// What the transport did.
    pub details: Option<Value>,
}

/// How often an intent is read that changes meanwhile.
const READS_MAX: usize = 8;

impl Beam {
    /// The intent with this nonce; without one, the message of the bus. Its state is that of the last stage, unless it changes
    /// at each of several reads.
    pub async fn trace(&self, nonce: &str) -> Result<Option<IntentTrace>, Error> {
        let mut trace = self.read_trace(nonce).await?;
        for _ in 1..READS_MAX {
            if trace.as_ref().is_none_or(IntentTrace::is_of_one_moment) {
                break;
            }
            trace = self.read_trace(nonce).await?;
        }
        Ok(trace)
    }

    /// Reads the row, and then its facts: the row may be older.
    async fn read_trace(&self, nonce: &str) -> Result<Option<IntentTrace>, Error> {
        let row = match self.row_of(nonce_key(nonce)).await? {
            Some(row) => Some(row),
            None => self.row_of(bus_nonce_key(nonce)).await?,
        };
        let Some(row) = row else { return Ok(None) };
        let Some(mut intent) = view(&row, nonce) else {
            return Ok(None);
        };
        let facts = self.engine().timeline(row.seq).await?;
        let stages = if facts.is_empty() {
            synthetic_stages(&intent)
        } else {
            facts.iter().map(|fact| stage(fact, &intent)).collect()
        };
        if let Some(repeated) = last_repetition(&stages)
            && let Some(at) = timestamp::parse(&repeated)
        {
            intent.requested_at_ms = at.0 / 1_000;
            intent.timestamp = repeated;
        }
        Ok(Some(IntentTrace { intent, stages }))
    }

    async fn row_of(&self, key: OnceKey) -> Result<Option<Intent>, Error> {
        let used = self.engine().first_use(key).await?;
        match used.and_then(|used| used.intent) {
            Some(id) => self.engine().observe(id).await,
            None => Ok(None),
        }
    }
}

/// The once-key of a nonce on the bus.
fn bus_nonce_key(nonce: &str) -> OnceKey {
    OnceKey {
        scope: Scope::BeamBusNonce,
        owner: String::new(),
        key: nonce.to_owned(),
    }
}

/// The row without its payload. A message of the bus has no frame yet, so its time is that of its arrival.
fn view(row: &Intent, nonce: &str) -> Option<IntentRow> {
    if row.profile == ProfileId::BeamDirectory {
        return IntentRow::of(row);
    }
    Some(IntentRow {
        nonce: nonce.to_owned(),
        from: row.ties.sender.clone()?,
        to: row.owner.clone(),
        intent_type: row.goal.clone(),
        timestamp: timestamp::format(row.created_at),
        requested_at_ms: row.created_at.0 / 1_000,
        completed_at_ms: row.settled_at.map(|at| at.0 / 1_000),
        latency_ms: None,
        state: row.state,
        error_code: error_code(row),
    })
}

fn stage(fact: &Fact, intent: &IntentRow) -> TraceStage {
    let timestamp = if fact.to == State::Received {
        intent.timestamp.clone()
    } else {
        timestamp::format(fact.time_of_day())
    };
    TraceStage {
        id: i64::try_from(fact.seq.0).unwrap_or(i64::MAX),
        state: fact.to,
        timestamp,
        details: details(fact),
    }
}

/// When its sender repeated the intent last.
fn last_repetition(stages: &[TraceStage]) -> Option<String> {
    let queued = stages
        .iter()
        .rev()
        .filter(|stage| stage.state == State::Queued);
    let mut repeated = queued.filter_map(|stage| repeated_at(stage.details.as_ref()?));
    repeated.next().map(str::to_owned)
}

/// The details that the relay stored. Steps of the ledger itself have none, so they are derived from the fact.
fn details(fact: &Fact) -> Option<Value> {
    let stored = fact.detail.as_deref();
    let stored = stored.and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(details) = stored.filter(Value::is_object) {
        return Some(details);
    }
    let previous = fact.from.map(lifecycle::state_word);
    if fact.verb == Verb::Recover {
        return Some(json!({
            "transport": "recovery",
            "previousStatus": previous,
            "recoveryAction": "fail_interrupted_intent",
            "recoveredOnBoot": true,
        }));
    }
    (fact.verb == Verb::Expire).then(|| {
        json!({
            "transport": "recovery",
            "previousStatus": previous,
            "recoveryAction": "timeout_without_waiter",
            "errorCode": "TIMEOUT",
        })
    })
}

/// An intent that was imported without its trace.
fn synthetic_stages(intent: &IntentRow) -> Vec<TraceStage> {
    let mut stages = vec![TraceStage {
        id: 0,
        state: State::Received,
        timestamp: intent.timestamp.clone(),
        details: None,
    }];
    if intent.state != State::Received {
        let completed_at = intent
            .completed_at_ms
            .filter(|_| is_terminal(intent.state))
            .map(timestamp::format_ms);
        stages.push(TraceStage {
            id: -1,
            state: intent.state,
            timestamp: completed_at.unwrap_or_else(|| intent.timestamp.clone()),
            details: Some(json!({
                "latencyMs": intent.latency_ms,
                "errorCode": intent.error_code,
            })),
        });
    }
    stages
}

#[cfg(test)]
mod tests;
