//! What a plugin remembers from one job to the next: its state, and its facts, which are only ever added to.

use consign_engine::{Engine, Error};
use serde_json::Value;

use super::attempt::{Attempt, Ended, Failure};
use super::commit::{Commit, Seen, read};
use super::job::Job;
use super::keep;
use crate::plugin::response::Response;

/// What a plugin may remember, as JSON.
const STATE_BYTES_MAX: usize = 1 << 20;

/// What a success adds. The inner error is the plugin's own fault.
pub(super) async fn remember(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    response: &Response,
    commit: &mut Commit,
) -> Result<Result<(), Failure>, Error> {
    if response.state_updates.is_empty() {
        return Ok(Ok(()));
    }
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let mut seen: Seen<keep::State> = read(engine, keep::state(plugin)).await?;
    let manifest = attempt
        .program
        .plugin(plugin)
        .map(|plugin| &plugin.manifest);
    let rules = manifest
        .into_iter()
        .flat_map(|manifest| &manifest.fact_outputs);
    let rules: Vec<_> = rules.filter(|rule| rule.command == *command).collect();
    for rule in &rules {
        seen.value.facts += 1;
        let seq = seen.value.facts;
        let fact = keep::Fact {
            seq,
            fact_type: rule.fact_type.clone(),
            job_id: attempt.job_id(),
            command: command.clone(),
            fact: response.state_updates.clone(),
            created_at: ended.completed_at,
        };
        commit.put(keep::fact(plugin, seq), &fact, None);
    }
    if !rules.is_empty() {
        seen.value.state.clear();
    }
    seen.value.state.extend(response.state_updates.clone());
    // A snapshot is the whole state then, so facts are bounded as well.
    let bytes = Value::Object(seen.value.state.clone()).to_string().len();
    if bytes > STATE_BYTES_MAX {
        let error = format!("its state would have {bytes} bytes; {STATE_BYTES_MAX} are allowed");
        return Ok(Err(Failure::for_good(error)));
    }
    seen.value.updated_at = Some(ended.completed_at);
    commit.replace(&seen);
    Ok(Ok(()))
}
