//! The gate in front of a request: key still valid, nonce unused, rate limit not reached, in that order.
//!
//! Invariant: an unused nonce is consumed whatever follows; a refused request does not count against the rate limit.

use super::{Write, live};
use crate::command::Gate;
use crate::error::Refusal;
use crate::ids::{Micros, SECOND_US};
use crate::limits;
use crate::once::{self, Scope, Verdict};
use crate::plant::{self, Plant};
use crate::record::{ApiKey, Record};

/// Writes that are kept whether or not the request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateDecision {
    pub writes: Vec<Write>,
    pub refusal: Option<Refusal>,
}

impl Gate {
    pub fn nonce_key(&self) -> Option<once::OnceKey> {
        self.nonce.as_ref().map(|nonce| once::OnceKey {
            scope: Scope::IntentNonce,
            owner: self.caller.clone(),
            key: nonce.clone(),
        })
    }
}

/// `key` is the caller's record if it is metered, `nonce` the stored use of its nonce.
pub fn gate(
    gate: &Gate,
    key: Option<Record>,
    nonce: Option<&once::FirstUse>,
    now: Micros,
) -> GateDecision {
    let mut writes = Vec::new();
    let refusal = pass(gate, key, nonce, now, &mut writes).err();
    GateDecision { writes, refusal }
}

fn pass(
    gate: &Gate,
    key: Option<Record>,
    nonce: Option<&once::FirstUse>,
    now: Micros,
    writes: &mut Vec<Write>,
) -> Result<(), Refusal> {
    let key = match live(key, now) {
        Some(record) if gate.metered => Some(record),
        None if gate.metered => return Err(Refusal::UnknownKey),
        _ => None,
    };
    let key = key
        .map(|record| Ok((parse(&record)?, record)))
        .transpose()?;
    if let Some((key, _)) = &key
        && key.is_expired(now)
    {
        return Err(Refusal::KeyExpired);
    }
    if let Some(nonce_key) = gate.nonce_key() {
        if once::compare(nonce, &[0; 32], now) != Verdict::First
            && !plant::on(Plant::SkipReplayCheck)
        {
            return Err(Refusal::Replay);
        }
        let until = now.plus(limits::NONCE_US);
        writes.push(Write::Once(once::FirstUse::bare(nonce_key, until)));
    }
    match key {
        // A waiting request was counted when it arrived; only its key must still be valid.
        Some(_) if gate.cost == 0 => Ok(()),
        Some((key, record)) => charge(gate, key, record, now, writes),
        None => Ok(()),
    }
}

fn parse(record: &Record) -> Result<ApiKey, Refusal> {
    serde_json::from_str(&record.value).map_err(|_| Refusal::UnknownKey)
}

/// A fixed window from the first request counted in it.
fn charge(
    gate: &Gate,
    mut key: ApiKey,
    mut record: Record,
    now: Micros,
    writes: &mut Vec<Write>,
) -> Result<(), Refusal> {
    let window_end = Micros(key.window_at).plus(limits::RATE_WINDOW_US);
    if window_end <= now {
        key.window_at = now.0;
        key.window_count = 0;
    }
    let count = key.window_count.saturating_add(gate.cost);
    if count > key.rate() && !plant::on(Plant::NoRateLimit) {
        let rest_us = Micros(key.window_at).plus(limits::RATE_WINDOW_US).0 - now.0;
        return Err(Refusal::RateLimited {
            retry_after_s: (rest_us + SECOND_US - 1) / SECOND_US,
        });
    }
    key.window_count = count;
    key.total_requests += 1;
    key.last_used_at = Some(now.0);
    record.value = serde_json::to_string(&key).expect("a plain struct of text and numbers");
    record.version += 1;
    writes.push(Write::Put(record));
    Ok(())
}
