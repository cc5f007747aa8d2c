//! What a plugin remembers from one job to the next: its state, and its facts, which are only ever added to.

use consign_engine::{Engine, Error};
use serde_json::Value;

use super::attempt::{Attempt, AttemptFailure, AttemptReport};
use super::job::Job;
use super::records;
use super::unit_of_work::{UnitOfWork, Versioned, get_record_or_default};
use crate::plugin::response::PluginResponse;

/// What a plugin may remember, as JSON.
const STATE_BYTES_MAX: usize = 1 << 20;

/// What a success adds. The inner error is the plugin's own fault.
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
        get_record_or_default(engine, records::state_key(plugin)).await?;
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
        unit.put(records::fact_key(plugin, seq), &fact, None);
    }
    if !rules.is_empty() {
        record.value.state.clear();
    }
    record.value.state.extend(response.state_updates.clone());
    // A snapshot is the whole state then, so facts are bounded as well.
    let bytes = Value::Object(record.value.state.clone()).to_string().len();
    if bytes > STATE_BYTES_MAX {
        let error = format!("its state would have {bytes} bytes; {STATE_BYTES_MAX} are allowed");
        return Ok(Err(AttemptFailure::permanent(error)));
    }
    record.value.updated_at = Some(ended.completed_at);
    unit.replace(&record);
    Ok(Ok(()))
}
