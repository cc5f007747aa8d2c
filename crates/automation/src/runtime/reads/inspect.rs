//! Everything about one job in one response: ancestors, baggage, transitions and attempts.

use consign_engine::Error;
use consign_kernel::fact::Fact;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::Intent;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::Cause;
use serde_json::{Map, Value, json};

use super::jobs::job_details;
use super::logs::LogFilter;
use super::{micros_json, put, timestamp_json};
use crate::runtime::job::{Job, job_id, parse_job_id};
use crate::runtime::lifecycle::Runtime;
use crate::runtime::records;

/// More ancestors and contexts than a job can have, so that a broken chain ends as well.
const HOPS_MAX: usize = 1_000;
/// How many attempts are listed.
const ATTEMPTS_MAX: usize = 200;

impl Runtime {
    /// `lineage` starts with the first ancestor and ends with the job, `contexts` starts with the first context, `transitions`
    /// and `attempts` are ordered from oldest to newest. For a pruned job only the log is available.
    pub async fn inspect(&self, id: IntentId) -> Result<Option<Value>, Error> {
        let Some(job) = self.job(id).await? else {
            return Ok(None);
        };
        let intent = self.observe_job(id).await?;
        let lineage = self.lineage(&job).await?;
        let contexts = self.contexts(intent.as_ref()).await?;
        let transitions = match &intent {
            Some(intent) => self.engine().timeline(intent.seq).await?,
            None => Vec::new(),
        };
        let transitions: Vec<Value> = transitions.iter().map(transition).collect();
        let of_job = LogFilter {
            job_id: Some(job_id(id)),
            limit: ATTEMPTS_MAX,
            include_result: true,
            ..LogFilter::default()
        };
        let mut logs = self.job_logs(&of_job).await?;
        let mut attempts = logs["logs"].take();
        if let Some(newest_first) = attempts.as_array_mut() {
            newest_first.reverse();
        }
        Ok(Some(json!({
            "job": job, "lineage": lineage, "contexts": contexts, "transitions": transitions, "attempts": attempts,
        })))
    }

    /// The ancestors that still exist, first ancestor first, then the job itself.
    async fn lineage(&self, job: &Value) -> Result<Vec<Value>, Error> {
        let mut lineage = vec![ancestor(job)];
        let mut parent = job["parent_job_id"].as_str().and_then(parse_job_id);
        while let Some(id) = parent
            && lineage.len() < HOPS_MAX
        {
            // The output of an ancestor is not needed, and may be large.
            let job = match self.observe_job(id).await? {
                Some(intent) => Some(Value::Object(job_details(&intent, None))),
                None => self.job(id).await?,
            };
            let Some(job) = job else {
                // Pruned together with its log: only its id is known.
                lineage.push(json!({"job_id": job_id(id)}));
                break;
            };
            lineage.push(ancestor(&job));
            parent = job["parent_job_id"].as_str().and_then(parse_job_id);
        }
        lineage.reverse();
        Ok(lineage)
    }

    /// The baggage of the job, and what each earlier context added.
    async fn contexts(&self, intent: Option<&Intent>) -> Result<Vec<Value>, Error> {
        let job = intent.and_then(|intent| Job::read(intent).ok());
        let mut wanted = job.and_then(|job| job.event_context_id);
        let mut found: Vec<(String, records::EventContext)> = Vec::new();
        while let Some(id) = wanted.take()
            && found.len() < HOPS_MAX
        {
            let record = self.engine().record(records::context_key(&id)).await?;
            let context = record.and_then(|record| serde_json::from_str(&record.value).ok());
            let Some(context): Option<records::EventContext> = context else {
                break;
            };
            wanted.clone_from(&context.parent_id);
            found.push((id, context));
        }
        let found = found.into_iter().rev().enumerate();
        Ok(found
            .map(|(hop, (id, context))| context_details(hop, &id, context))
            .collect())
    }
}

fn ancestor(job: &Value) -> Value {
    let fields = [
        "job_id",
        "plugin",
        "command",
        "status",
        "attempt",
        "created_at",
        "pipeline",
        "step_id",
    ];
    let fields = fields.into_iter().filter_map(|key| {
        let value = job.get(key)?;
        Some((key.to_owned(), value.clone()))
    });
    Value::Object(fields.collect())
}

fn context_details(hop: usize, id: &str, context: records::EventContext) -> Value {
    let mut shown = Map::new();
    put(&mut shown, "hop", Some(hop));
    put(&mut shown, "context_id", Some(id));
    put(&mut shown, "parent_id", context.parent_id);
    put(&mut shown, "pipeline", context.pipeline_name);
    put(&mut shown, "step_id", context.step_id);
    put(&mut shown, "baggage", Some(context.accumulated));
    put(
        &mut shown,
        "created_at",
        Some(timestamp_json(context.created_at)),
    );
    Value::Object(shown)
}

/// In the words of the protocol. A fact stores the cause of the state it leads to, so there is none for `from`.
fn transition(fact: &Fact) -> Value {
    let profile = ProfileId::Automation.profile();
    let word = |state, cause| profile.word(state, cause).unwrap_or("queued");
    let mut shown = Map::new();
    put(&mut shown, "at", Some(micros_json(fact.time_of_day())));
    put(&mut shown, "event", Some(fact.verb.fact()));
    put(
        &mut shown,
        "from",
        fact.from.map(|from| word(from, Cause::None)),
    );
    put(&mut shown, "to", Some(word(fact.to, fact.cause)));
    let cause = Some(fact.cause).filter(|cause| *cause != Cause::None);
    put(&mut shown, "cause", cause.map(Cause::name));
    put(&mut shown, "attempt", Some(fact.attempt));
    put(&mut shown, "by", fact.actor.clone());
    put(&mut shown, "detail", fact.detail.clone());
    Value::Object(shown)
}
