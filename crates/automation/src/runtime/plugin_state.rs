//! The persistent state of a plugin between jobs, and its append-only facts.

use consign_engine::{Engine, Error, UnitOfWork, Versioned};
use serde_json::Value;

use super::attempt::{Attempt, AttemptFailure, AttemptReport};
use super::job::Job;
use super::records;
use crate::plugin::response::PluginResponse;

/// The maximum size of the state as JSON.
const STATE_BYTES_MAX: usize = 1 << 20;

/// Applies the state updates of a success. The inner error is a fault of the plugin.
pub(super) async fn apply_updates(
    engine: &Engine,
    attempt: &Attempt,
    ended: &AttemptReport,
    response: &PluginResponse,
    unit: &mut UnitOfWork,
) -> Result<Result<(), AttemptFailure>, Error> {
    if response.state_updates.is_empty() {
        return Ok(Ok(()));
    }
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let mut record: Versioned<records::PluginState> =
        engine.load_or_default(records::state_key(plugin)).await?;
    let manifest = attempt
        .program
        .plugin(plugin)
        .map(|plugin| &plugin.manifest);
    let rules = manifest
        .into_iter()
        .flat_map(|manifest| &manifest.fact_outputs);
    let rules: Vec<_> = rules.filter(|rule| rule.command == *command).collect();
    for rule in &rules {
        record.value.facts += 1;
        let seq = record.value.facts;
        let fact = records::PluginFact {
            seq,
            fact_type: rule.fact_type.clone(),
            job_id: attempt.job_id(),
            command: command.clone(),
            fact: response.state_updates.clone(),
            created_at: ended.completed_at,
        };
        unit.put(records::fact_key(plugin, seq), &fact);
    }
    if !rules.is_empty() {
        record.value.state.clear();
    }
    record.value.state.extend(response.state_updates.clone());
    // With fact rules the updates are the whole state, so this bounds the facts as well.
    let bytes = Value::Object(record.value.state.clone()).to_string().len();
    if bytes > STATE_BYTES_MAX {
        let error = format!("its state would have {bytes} bytes; {STATE_BYTES_MAX} are allowed");
        return Ok(Err(AttemptFailure::permanent(error)));
    }
    record.value.updated_at = Some(ended.completed_at);
    unit.replace(&record);
    Ok(Ok(()))
}
