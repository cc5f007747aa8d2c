//! The end of an attempt as one commit: the job is settled, its successors are queued, and state, facts, breaker, schedule and log
//! are written, all of it or nothing.
//!
//! Whatever can be refused stands in front: records that must still be what was read, then the lease. Behind them nothing can fail.

use consign_engine::{Engine, Error};
use consign_kernel::command::{Admit, Admitted, Answer, Claim, Command, Settle, Settlement};
use consign_kernel::error::Refusal;
use consign_kernel::ids::IntentId;
use consign_kernel::intent::{Intent, Outcome, ResultKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::attempt::{Attempt, End, Ended, Failure};
use super::circuit;
use super::commit::{Commit, Seen, TRIES_MAX, read, read_some};
use super::job::{Job, SubmittedBy, job_id, micros};
use super::keep;
use super::service::{instant, uuid};
use crate::breaker::Transition;
use crate::pipeline::{Emitted, Hook, JobEnd, NextJob, Notice, Position, Producer, Routed};
use crate::plugin::request::HANDLE;
use crate::plugin::response::{EmittedEvent, Response};

/// What a plugin may remember, as JSON.
const STATE_BYTES_MAX: usize = 1 << 20;
/// Why an attempt failed whose process ended with the service.
pub(super) const RECOVERED: &str = "recovered";
/// The command that runs once for a program and its configuration, and never again if it fails.
pub(super) const INIT: &str = "init";
/// Jobs that one job may bring about.
const CHILDREN_MAX: usize = 1_000;

/// What became of the job.
pub(super) struct Finished {
    /// In the protocol's words: `succeeded`, `failed`, `timed_out`, `dead`, or `queued` for another attempt.
    pub(super) status: &'static str,
    pub(super) error: Option<String>,
    pub(super) reason: Option<&'static str>,
    pub(super) retry_at: Option<Timestamp>,
    /// What it did to the breaker.
    pub(super) circuit: Option<Transition>,
    pub(super) children: Vec<(Job, Admitted)>,
    /// What the claim behind it took.
    pub(super) next: Vec<Intent>,
}

/// Settles the job with all that follows, and takes the next one in the same commit if there is a claim for it. An error means that
/// nothing happened, or that nobody knows.
pub(super) async fn finish(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    next: Option<&Claim>,
) -> Result<Finished, Error> {
    for _ in 0..TRIES_MAX {
        match try_to_finish(engine, attempt, ended, next).await {
            Err(Error::Refused(Refusal::VersionMismatch)) => {}
            finished => return finished,
        }
    }
    Err(Error::Refused(Refusal::VersionMismatch))
}

async fn try_to_finish(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    next: Option<&Claim>,
) -> Result<Finished, Error> {
    let mut commit = Commit::default();
    let settled = match &ended.end {
        End::Succeeded(response) => succeed(engine, attempt, ended, response, &mut commit).await?,
        End::Switched { matched, payload } => {
            pass_on(engine, attempt, ended, *matched, payload, &mut commit)
        }
        End::Failed(failure) => Err(Failure {
            error: failure.error.clone(),
            ..*failure
        }),
        End::Cancelled => Err(Failure::for_good("it was cancelled")),
    };
    if settled.is_err() {
        // What was prepared for a success is void.
        commit = Commit::default();
    }
    let failure = settled.as_ref().err();
    let (status, end) = status(attempt, failure);
    let mut circuit = None;
    if let Some(end) = end {
        circuit = over(engine, attempt, ended, (status, end), failure, &mut commit).await?;
    }
    // The attempt's own outcome: what the job goes on to be is told by the queue.
    let outcome = match failure {
        Some(Failure {
            timed_out: true, ..
        }) => "timed_out",
        Some(_) => "failed",
        None => status,
    };
    write_log(engine, attempt, ended, outcome, failure, &mut commit);
    let how = settlement(&settled);
    let jobs = std::mem::take(&mut commit.jobs);
    let mut steps = steps(attempt, how, commit, &jobs);
    steps.extend(next.cloned().map(Command::Claim));
    let answers = engine.together(steps).await?;
    let mut finished = Finished {
        status,
        error: failure.map(|failure| failure.error.clone()),
        reason: failure.map(|failure| failure.reason),
        retry_at: None,
        circuit,
        children: Vec::new(),
        next: Vec::new(),
    };
    for answer in answers {
        if let Answer::Admitted(admitted) = answer {
            finished.children = jobs.iter().cloned().zip(admitted).collect();
        } else if let Answer::Claimed(claimed) = answer {
            finished.next = claimed;
        } else if let Answer::Settled { run_at, .. } = answer
            && status == "queued"
        {
            finished.retry_at = Some(instant(run_at));
        }
    }
    Ok(finished)
}

fn steps(attempt: &Attempt, how: Settlement, commit: Commit, jobs: &[Job]) -> Vec<Command> {
    let intent = &attempt.intent;
    let settle = Command::Settle(Settle {
        id: intent.id,
        holder: intent.holder.clone().unwrap_or_default(),
        token: intent.token.unwrap_or(consign_kernel::ids::Token([0; 16])),
        how,
    });
    let mut steps = commit.steps([settle]);
    admit(&mut steps, attempt, jobs);
    steps
}

fn admit(steps: &mut Vec<Command>, attempt: &Attempt, jobs: &[Job]) {
    if !jobs.is_empty() {
        let parent = Some(attempt.intent.id);
        let new = |job: &Job| job.intent(&attempt.program, parent, None);
        steps.push(Command::Admit(Admit {
            items: jobs.iter().map(new).collect(),
            cap: None,
        }));
    }
}

/// What a success leaves in the job itself, or what failed.
type Settled = Result<String, Failure>;

fn settlement(settled: &Settled) -> Settlement {
    match settled {
        Ok(result) => Settlement::Complete {
            result: Some(Outcome {
                kind: ResultKind::Text,
                body: result.clone(),
            }),
        },
        Err(failure) => Settlement::FailAttempt {
            error: failure.error.clone(),
            timed_out: failure.timed_out,
            again: failure.again,
        },
    }
}

/// The word for what the job is afterwards, and its end if this was one.
fn status(attempt: &Attempt, failure: Option<&Failure>) -> (&'static str, Option<JobEnd>) {
    let Some(failure) = failure else {
        return ("succeeded", Some(JobEnd::Succeeded));
    };
    let last = attempt.intent.attempts >= attempt.intent.attempts_max;
    match failure {
        Failure { again: true, .. } if last => ("dead", Some(JobEnd::Dead)),
        Failure { again: true, .. } => ("queued", None),
        Failure {
            timed_out: true, ..
        } => ("timed_out", Some(JobEnd::TimedOut)),
        Failure { .. } => ("failed", Some(JobEnd::Failed)),
    }
}

async fn succeed(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    response: &Response,
    commit: &mut Commit,
) -> Result<Settled, Error> {
    if let Err(failure) = remember(engine, attempt, ended, response, commit).await? {
        return Ok(Err(failure));
    }
    let events: Vec<Emitted<'_>> = response
        .events
        .iter()
        .map(|event| Emitted {
            event_type: &event.kind,
            payload: &event.payload,
        })
        .collect();
    let router = attempt.program.router();
    let routed = router.finished(producer(attempt), &events, Some(&response.result));
    let routed = match routed {
        Ok(routed) => routed,
        Err(error) => return Ok(Err(Failure::for_good(error.to_string()))),
    };
    let ids: Vec<String> = response.events.iter().map(|_| uuid(engine)).collect();
    let source = |next: &NextJob| match next.event {
        Some(index) => Source {
            kind: next.event_type.clone(),
            plugin: attempt.job.plugin.clone(),
            at: ended.completed_at,
            id: ids[index].clone(),
            dedupe_key: response.events[index].dedupe_key.clone(),
        },
        None => Source {
            kind: next.event_type.clone(),
            plugin: attempt.job.plugin.clone(),
            at: ended.completed_at,
            id: uuid(engine),
            dedupe_key: None,
        },
    };
    Ok(queue(engine, attempt, ended, routed, source, commit).map(|()| response.result.clone()))
}

/// A condition was looked at; the event goes on as it came.
fn pass_on(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    matched: bool,
    payload: &Value,
    commit: &mut Commit,
) -> Settled {
    let text = |name: &str| {
        let value = attempt.job.payload.get(name).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let kind = text("type");
    let event = Emitted {
        event_type: &kind,
        payload,
    };
    let routed = attempt
        .program
        .router()
        .switched(producer(attempt), event, matched)
        .map_err(|error| Failure::for_good(error.to_string()))?;
    let source = |_: &NextJob| Source {
        kind: kind.clone(),
        plugin: text("source"),
        at: text("timestamp").parse().unwrap_or(ended.completed_at),
        id: text("event_id"),
        dedupe_key: attempt.job.dedupe_key.clone(),
    };
    queue(engine, attempt, ended, routed, source, commit)?;
    Ok(crate::pipeline::switch_result(matched).to_string())
}

fn producer(attempt: &Attempt) -> Producer<'_> {
    Producer {
        plugin: &attempt.job.plugin,
        context: &attempt.context,
        depth: attempt.job.depth,
        position: attempt.job.position.as_ref(),
    }
}

/// Where an event came from, for the job that it makes.
struct Source {
    kind: String,
    plugin: String,
    at: Timestamp,
    id: String,
    dedupe_key: Option<String>,
}

fn queue(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    routed: Routed,
    source: impl Fn(&NextJob) -> Source,
    commit: &mut Commit,
) -> Result<(), Failure> {
    tell(attempt, &routed.notices);
    if routed.jobs.len() > CHILDREN_MAX {
        let count = routed.jobs.len();
        let error = format!("its events lead to {count} jobs; one job may make {CHILDREN_MAX}");
        return Err(Failure::for_good(error));
    }
    // The steps of one entrance belong together.
    let mut instances: Vec<(String, Option<usize>, String)> = Vec::new();
    for next in routed.jobs {
        let source = source(&next);
        let instance_id = next.position.as_ref().map(|position| {
            if !next.enters {
                return attempt.job.instance_id.clone().unwrap_or_default();
            }
            let known = instances.iter().find(|(pipeline, event, _)| {
                *pipeline == position.pipeline && *event == next.event
            });
            if let Some((_, _, id)) = known {
                return id.clone();
            }
            let id = uuid(engine);
            instances.push((position.pipeline.clone(), next.event, id.clone()));
            id
        });
        let has_context = next.position.is_some() || attempt.job.event_context_id.is_some();
        let event_context_id = has_context.then(|| uuid(engine));
        if let Some(id) = &event_context_id {
            let context = context_of(&next, attempt.job.event_context_id.clone(), ended);
            commit.put(keep::context(id), &context, None);
        }
        commit
            .jobs
            .push(child(next, source, instance_id, event_context_id));
    }
    Ok(())
}

fn context_of(next: &NextJob, parent_id: Option<String>, ended: &Ended) -> keep::Context {
    let position = next.position.as_ref();
    keep::Context {
        parent_id,
        pipeline_name: position.map(|position| position.pipeline.clone()),
        step_id: position.map(|position| position.step.clone()),
        accumulated: next.context.clone(),
        created_at: ended.completed_at,
    }
}

fn child(
    next: NextJob,
    source: Source,
    instance_id: Option<String>,
    event_context_id: Option<String>,
) -> Job {
    let is_wrapped = next.command == HANDLE;
    let payload = if is_wrapped {
        wrapped(&source, next.payload)
    } else {
        next.payload
    };
    Job {
        plugin: next.plugin,
        command: next.command,
        submitted_by: SubmittedBy::Route,
        payload,
        dedupe_key: source.dedupe_key,
        source_event_id: Some(source.id),
        event_context_id,
        position: next.position,
        instance_id,
        schedule_id: None,
        depth: next.depth,
        hook_depth: 0,
    }
}

/// The event around a payload, as `handle` gets it.
fn wrapped(source: &Source, payload: Value) -> Value {
    let emitted = EmittedEvent {
        kind: source.kind.clone(),
        payload,
        dedupe_key: source.dedupe_key.clone(),
    };
    event(emitted, &source.plugin, source.at, &source.id)
}

pub(super) fn event(emitted: EmittedEvent, source: &str, at: Timestamp, id: &str) -> Value {
    let stamped =
        crate::plugin::request::Event::stamped(emitted, source.to_owned(), at, id.to_owned());
    serde_json::to_value(stamped).expect("texts and JSON values always serialise")
}

fn tell(attempt: &Attempt, notices: &[Notice]) {
    let (plugin, job_id) = (&attempt.job.plugin, attempt.job_id());
    for notice in notices {
        match notice {
            Notice::Unmatched { event_type } => {
                tracing::debug!(plugin, job_id, event_type, "nothing follows from the event");
            }
            Notice::Cut { target, depth } => {
                tracing::error!(
                    plugin,
                    job_id,
                    target,
                    depth,
                    "too many hops; the event ends here"
                );
            }
            Notice::Gone(position) => {
                let Position { pipeline, step, .. } = position;
                tracing::warn!(
                    plugin,
                    job_id,
                    pipeline,
                    step,
                    "the configuration no longer has this step"
                );
            }
        }
    }
}

/// The plugin's state and facts.
async fn remember(
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
    if rules.iter().any(|rule| rule.mirrored) {
        seen.value.state.clone_from(&response.state_updates);
    } else if rules.is_empty() {
        let updates = response.state_updates.clone();
        seen.value.state.extend(updates);
    }
    let bytes = Value::Object(seen.value.state.clone()).to_string().len();
    if bytes > STATE_BYTES_MAX {
        let error = format!("its state would have {bytes} bytes; {STATE_BYTES_MAX} are allowed");
        return Ok(Err(Failure::for_good(error)));
    }
    seen.value.updated_at = Some(ended.completed_at);
    commit.replace(&seen);
    Ok(Ok(()))
}

/// Writes down an attempt that none of our processes ended, and what follows if the job is over. `mark` makes sure that it is done once.
pub(super) async fn follow_up(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    failure: &Failure,
    mark: &Seen<keep::Watermark>,
) -> Result<Finished, Error> {
    let mut commit = Commit::default();
    commit.replace(mark);
    let mut circuit = None;
    let status = if failure.again { "queued" } else { "dead" };
    if !failure.again {
        let end = (status, JobEnd::Dead);
        circuit = over(engine, attempt, ended, end, Some(failure), &mut commit).await?;
    }
    let outcome = match failure {
        Failure {
            timed_out: true, ..
        } => "timed_out",
        Failure { again: true, .. } => "failed",
        Failure { .. } => "dead",
    };
    write_log(engine, attempt, ended, outcome, Some(failure), &mut commit);
    let jobs = std::mem::take(&mut commit.jobs);
    let mut steps = commit.steps([]);
    admit(&mut steps, attempt, &jobs);
    let answers = engine.together(steps).await?;
    let mut children = Vec::new();
    if let Some(Answer::Admitted(admitted)) = answers.into_iter().next_back() {
        children = jobs.into_iter().zip(admitted).collect();
    }
    Ok(Finished {
        status,
        error: Some(failure.error.clone()),
        reason: Some(failure.reason),
        retry_at: None,
        circuit,
        children,
        next: Vec::new(),
    })
}

/// What follows from the end of a job, whoever ended it.
async fn over(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    (status, end): (&'static str, JobEnd),
    failure: Option<&Failure>,
    commit: &mut Commit,
) -> Result<Option<Transition>, Error> {
    hooks(engine, attempt, ended, status, end, failure, commit);
    if attempt.job.command == INIT {
        set_up(engine, attempt, failure, commit).await?;
    } else if attempt.job.submitted_by == SubmittedBy::Scheduler {
        return count(engine, attempt, failure.is_none(), ended, commit).await;
    }
    Ok(None)
}

/// What the breaker and the schedule learn from the end of a scheduled job.
async fn count(
    engine: &Engine,
    attempt: &Attempt,
    succeeded: bool,
    ended: &Ended,
    commit: &mut Commit,
) -> Result<Option<Transition>, Error> {
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let Some(configured) = attempt.program.plugin(plugin) else {
        return Ok(None);
    };
    let now = ended.completed_at;
    let mut seen: Seen<keep::Circuit> = read(engine, keep::breaker(plugin, command)).await?;
    let circuit = &mut seen.value;
    let id = attempt.job_id();
    let transition = circuit
        .breaker
        .observe(&id, succeeded, configured.breaker, now);
    circuit.updated_at = Some(now);
    if !succeeded {
        circuit.last_failure_at = Some(now);
    }
    match &transition {
        Some(change) => {
            let (change, job_id) = (change.clone(), Some(id.clone()));
            circuit::change(engine, &attempt.program, &seen, change, job_id, commit);
        }
        None => commit.replace(&seen),
    }
    let entry = attempt.job.schedule_id.as_ref().and_then(|id| {
        let mut entries = configured.schedules.iter();
        entries.find(|entry| entry.id == *id)
    });
    if let (Some(entry), true) = (entry, succeeded) {
        let key = keep::schedule(plugin, &entry.id);
        if let Some(mut seen) = read_some::<keep::Schedule>(engine, key).await? {
            let draw = (engine.entropy().draw() >> 64) as u64;
            entry.succeeded(&mut seen.value.state, now, draw);
            seen.value.last_success_job_id = Some(id);
            seen.value.updated_at = now;
            commit.replace(&seen);
        }
    }
    Ok(transition)
}

/// An `init` that was asked for by hand says how the plugin is, but not for which program it was made.
async fn set_up(
    engine: &Engine,
    attempt: &Attempt,
    failure: Option<&Failure>,
    commit: &mut Commit,
) -> Result<(), Error> {
    let mut seen: Seen<keep::Setup> = read(engine, keep::setup(&attempt.job.plugin)).await?;
    let made_for = attempt
        .job
        .payload
        .get("fingerprint")
        .and_then(Value::as_str);
    if made_for.is_some_and(|made_for| made_for != seen.value.fingerprint) {
        // Another one is on its way already, for a newer program.
        return Ok(());
    }
    seen.value = keep::Setup {
        fingerprint: seen.value.fingerprint,
        job_id: attempt.job_id(),
        pending: false,
        healthy: failure.is_none(),
        error: failure.map(|failure| failure.error.clone()),
    };
    commit.replace(&seen);
    Ok(())
}

fn hooks(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    status: &str,
    end: JobEnd,
    failure: Option<&Failure>,
    commit: &mut Commit,
) {
    let Job {
        plugin, command, ..
    } = &attempt.job;
    let configured = attempt.program.plugin(plugin);
    let asked = configured.is_some_and(|plugin| plugin.notify_on_complete);
    let has_context = attempt.job.event_context_id.is_some();
    let mut payload = json!({
        "job_id": attempt.job_id(), "plugin": plugin, "command": command, "status": status,
    });
    if let End::Succeeded(response) = &ended.end {
        payload["result"] = response.result.as_str().into();
    }
    if let Some(failure) = failure {
        let line = format!("{plugin}/{command} {status}: {}", failure.error);
        payload["error"] = failure.error.as_str().into();
        payload["reason"] = failure.reason.into();
        if failure.reason == RECOVERED {
            payload["recovery"] = true.into();
        }
        payload["message"] = line.as_str().into();
        payload["text"] = line.into();
    }
    let service = &attempt.program.config().service;
    let depth_max = u32::try_from(service.hook_max_depth).unwrap_or(u32::MAX);
    for hook in Hook::signals(end, asked, has_context) {
        let depth = attempt.job.hook_depth;
        let routed = attempt
            .program
            .router()
            .hook(*hook, plugin, &payload, depth, depth_max);
        let routed = match routed {
            Ok(routed) => routed,
            Err(error) => {
                tracing::error!(plugin, job_id = attempt.job_id(), %error, "a hook could not be started");
                continue;
            }
        };
        tell(attempt, &routed.notices);
        let instance_id = uuid(engine);
        for next in routed.jobs {
            let source = Source {
                kind: next.event_type.clone(),
                plugin: plugin.clone(),
                at: ended.completed_at,
                id: uuid(engine),
                dedupe_key: None,
            };
            let event_context_id = (!next.context.is_empty()).then(|| uuid(engine));
            if let Some(id) = &event_context_id {
                commit.put(keep::context(id), &context_of(&next, None, ended), None);
            }
            let job = child(next, source, Some(instance_id.clone()), event_context_id);
            commit.jobs.push(Job {
                submitted_by: SubmittedBy::Hook,
                hook_depth: depth + 1,
                ..job
            });
        }
    }
}

fn write_log(
    engine: &Engine,
    attempt: &Attempt,
    ended: &Ended,
    status: &str,
    failure: Option<&Failure>,
    commit: &mut Commit,
) {
    let job = &attempt.job;
    let log = keep::Log {
        job_id: attempt.job_id(),
        plugin: job.plugin.clone(),
        command: job.command.clone(),
        status: status.to_owned(),
        attempt: attempt.intent.attempts,
        submitted_by: job.submitted_by,
        created_at: instant(attempt.intent.created_at),
        started_at: attempt.started_at,
        completed_at: ended.completed_at,
        result: ended.stdout.clone(),
        last_error: failure.map(|failure| failure.error.clone()),
        reason: failure.map(|failure| failure.reason.to_owned()),
        stderr: ended.stderr.clone(),
        parent_job_id: attempt.intent.ties.parent.map(job_id),
        source_event_id: job.source_event_id.clone(),
    };
    let retention = attempt.program.config().service.job_log_retention;
    let until = engine.now().plus(micros(retention));
    let key = keep::log(&log.job_id, log.attempt);
    commit.put(key, &log, Some(until));
}

/// For a job that could not even be read: it is failed for good, and nothing follows from it.
pub(super) async fn give_up(
    engine: &Engine,
    intent: &consign_kernel::intent::Intent,
    failure: &Failure,
) -> Result<IntentId, Error> {
    let settle = Settle {
        id: intent.id,
        holder: intent.holder.clone().unwrap_or_default(),
        token: intent.token.unwrap_or(consign_kernel::ids::Token([0; 16])),
        how: settlement(&Err(Failure {
            error: failure.error.clone(),
            ..*failure
        })),
    };
    engine.together(vec![Command::Settle(settle)]).await?;
    Ok(intent.id)
}
