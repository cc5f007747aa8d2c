//! Intents of a directory with their traces.

use consign_engine::{Error, ForeignBeamIntent, ForeignTraceEvent};
use consign_kernel::command::{EarlierFact, OnceGuard, Restore};
use consign_kernel::ids::{IntentId, Micros, Seq};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf, Ties};
use consign_kernel::profile::{Profile, ProfileId};
use consign_kernel::state::{Cause, State, Verb};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::instants::iso;
use super::{BeamImport, PAGE, WAITS_US, bounded, imported_holder, shown, walk};
use crate::frame::{IntentFields, IntentFrame};
use crate::lifecycle::legacy::{TraceMigration, migrate_trace, status_of_row};
use crate::lifecycle::{OutcomeBucket, is_terminal};
use crate::relay::{ATTEMPTS_MAX, NAMESPACE, NONCE_LIFETIME_US, fingerprint, nonce_key};
use crate::text::{BeamObject, BeamValue};

/// How long a delivered intent waits for its result, if its trace does not say.
const RESULT_TIMEOUT_MS: i64 = 30_000;
/// The member of a stored frame that has the latency of an imported intent.
pub(crate) const LATENCY_MEMBER: &str = "roundTripLatencyMs";

impl<P: FnMut(u64, u64)> BeamImport<'_, P> {
    pub(super) async fn import_intents(&mut self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self.file.intents(cursor.as_ref(), PAGE)?;
            self.advance(&page);
            let mut rows = Vec::new();
            for row in page.rows {
                match row {
                    Ok(foreign) => rows.extend(self.intent(foreign)?),
                    Err(row) => self.report.skip_unreadable("intent", &row),
                }
            }
            let (taken, present) = self.restore(rows).await?;
            self.report.intents_taken += taken;
            self.report.intents_present += present;
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }

    fn intent(&mut self, foreign: ForeignBeamIntent) -> Result<Option<(String, Restore)>, Error> {
        let nonce = match foreign.nonce.as_deref() {
            Some(nonce) if !nonce.is_empty() => nonce.to_owned(),
            _ => format!("legacy-intent-{}", foreign.id),
        };
        let name = format!("intent {}", shown(&nonce));
        let mut trace = Vec::new();
        for row in self.file.trace(&nonce)? {
            match row {
                Ok(event) => trace.push(event),
                Err(row) => self.report.skip_unreadable("trace event", &row),
            }
        }
        match translate(&nonce, foreign, &trace, self.engine.now()) {
            Ok(restore) => Ok(Some((name, restore))),
            Err(reason) => {
                self.report.skip(format!("{name}: {reason}"));
                Ok(None)
            }
        }
    }
}

pub(super) fn translate(
    nonce: &str,
    foreign: ForeignBeamIntent,
    trace: &[ForeignTraceEvent],
    now: Micros,
) -> Result<Restore, String> {
    bounded(&[
        Some(nonce),
        Some(&foreign.intent_type),
        foreign.result_json.as_deref(),
    ])?;
    let state = status_of_row(&foreign.status);
    let requested_at = iso("requested_at", &foreign.requested_at)?;
    let completed_at = match foreign.completed_at.as_deref() {
        Some(text) => Some(iso("completed_at", text)?),
        None => None,
    };
    let mut history = history(trace)?;
    let ended_at = || {
        let last = history.last().map_or(requested_at, |fact| fact.at);
        completed_at.unwrap_or(last)
    };
    let settled_at = is_terminal(state).then(ended_at);
    if history.is_empty() {
        history.push(step(State::Received, None, requested_at, None));
    }
    end_with(
        &mut history,
        state,
        settled_at,
        foreign.error_code.as_deref(),
    );
    let is_out = matches!(state, State::Dispatched | State::Delivered);
    let lease_until = is_out.then(|| {
        if state == State::Delivered {
            result_deadline(trace, history.last())
        } else {
            now.plus(WAITS_US)
        }
    });
    let waits = state == State::Queued;
    let frame = frame(nonce, &foreign);
    let once = OnceGuard {
        key: nonce_key(nonce),
        fingerprint: fingerprint(
            &foreign.from_beam_id,
            &foreign.to_beam_id,
            &foreign.intent_type,
        ),
        lifetime_us: NONCE_LIFETIME_US,
    };
    let is_failed = OutcomeBucket::of(state) == OutcomeBucket::Error;
    let intent = Intent {
        seq: Seq(0),
        id: row_id(nonce),
        profile: ProfileId::BeamDirectory,
        namespace: NAMESPACE.to_owned(),
        goal: foreign.intent_type,
        owner: foreign.to_beam_id,
        public: false,
        target: None,
        capability: None,
        priority: 0,
        payload: frame,
        traceparent: None,
        ties: Ties {
            sender: Some(foreign.from_beam_id),
            ..Ties::default()
        },
        attempts: 1,
        attempts_max: ATTEMPTS_MAX,
        backoff_us: 0,
        created_at: requested_at,
        // A queued intent waits for the next start, which recovers it; no claim finds it before.
        run_at: if waits {
            now.plus(WAITS_US)
        } else {
            requested_at
        },
        expires_at: now.plus(2 * WAITS_US),
        state,
        cause: match OutcomeBucket::of(state) {
            OutcomeBucket::Success => Cause::Completed,
            OutcomeBucket::Error => Cause::Rejected,
            OutcomeBucket::InFlight => Cause::None,
        },
        shelf: Shelf::Ready,
        wake_at: Micros(0),
        holder: is_out.then(imported_holder),
        token: None,
        claimed_at: None,
        lease_until,
        settled_at,
        last_error: foreign.error_code.filter(|_| is_failed),
        result: result(foreign.result_json)?,
        last_fact: None,
        worker: None,
    };
    Ok(Restore {
        intent,
        history,
        once: Some(once),
    })
}

/// The id of an imported intent. It follows from the nonce, so a second import finds the row.
fn row_id(nonce: &str) -> IntentId {
    let digest: [u8; 32] = Sha256::new()
        .chain_update("beam directory intent\0")
        .chain_update(nonce)
        .finalize()
        .into();
    IntentId(digest[..16].try_into().expect("a digest has 32 bytes"))
}

/// The frame without its payload, which a directory does not store.
fn frame(nonce: &str, foreign: &ForeignBeamIntent) -> String {
    let frame = IntentFrame::new(IntentFields {
        from: foreign.from_beam_id.clone(),
        to: foreign.to_beam_id.clone(),
        intent: foreign.intent_type.clone(),
        payload: BeamObject::new(),
        nonce: nonce.to_owned(),
        timestamp: foreign.requested_at.clone(),
    });
    let mut frame = frame.to_value();
    if let (BeamValue::Object(fields), Some(latency_ms)) = (&mut frame, foreign.latency_ms) {
        #[expect(clippy::cast_precision_loss, reason = "a latency is far below 2^53")]
        fields.insert(LATENCY_MEMBER, BeamValue::Number(latency_ms as f64));
    }
    frame.to_text()
}

/// The stored result is returned to a sender verbatim, so it is kept verbatim.
fn result(stored: Option<String>) -> Result<Option<Outcome>, String> {
    let Some(body) = stored.filter(|body| !body.is_empty()) else {
        return Ok(None);
    };
    match crate::text::parse(body.as_bytes()) {
        Ok(BeamValue::Object(_)) => Ok(Some(Outcome {
            kind: ResultKind::Json,
            body,
        })),
        Ok(_) => Err("its result_json is no object".to_owned()),
        Err(defect) => Err(format!("its result_json is not JSON: {defect}")),
    }
}

/// The trace with canonical words. Its order and its times stay.
fn history(trace: &[ForeignTraceEvent]) -> Result<Vec<EarlierFact>, String> {
    let mut history: Vec<EarlierFact> = Vec::with_capacity(trace.len());
    for event in trace {
        bounded(&[event.details.as_deref()])?;
        let at = iso("trace timestamp", &event.timestamp)?;
        let migrated = migrate_trace(&event.stage, &event.status, event.details.as_deref());
        let (state, detail) = match migrated {
            TraceMigration::Delete => continue,
            TraceMigration::Keep => (
                status_of_row(&event.stage),
                object(event.details.as_deref()),
            ),
            TraceMigration::Becomes { state, details } => {
                (state, Some(Value::Object(details).to_string()))
            }
        };
        let from = history.last().map(|fact| fact.to);
        // Upstream returned a failed intent to its beginning.
        let state = match (from, state) {
            (Some(State::Failed), State::Received) => State::Queued,
            _ => state,
        };
        let Some(missing) = walk::between(directory_profile(), from, state) else {
            continue;
        };
        add_missing(&mut history, missing, at);
        let from = history.last().map(|fact| fact.to);
        history.push(EarlierFact {
            at,
            verb: verb(from, state),
            to: state,
            actor: None,
            detail,
        });
    }
    Ok(history)
}

fn directory_profile() -> &'static Profile {
    ProfileId::BeamDirectory.profile()
}

fn add_missing(history: &mut Vec<EarlierFact>, missing: Vec<State>, at: Micros) {
    for state in missing {
        let from = history.last().map(|fact| fact.to);
        history.push(step(state, from, at, None));
    }
}

/// Adds the steps to the state of the row. What the trace says about a later or another end is left out.
fn end_with(
    history: &mut Vec<EarlierFact>,
    state: State,
    settled_at: Option<Micros>,
    code: Option<&str>,
) {
    while let Some(last) = history.last() {
        if last.to == state {
            return;
        }
        let at = settled_at.unwrap_or(last.at);
        if let Some(missing) = walk::between(directory_profile(), Some(last.to), state) {
            add_missing(history, missing, at);
            let from = history.last().map(|fact| fact.to);
            history.push(step(state, from, at, code));
            return;
        }
        history.pop();
    }
}

/// Details that are no object are left out.
fn object(details: Option<&str>) -> Option<String> {
    let details = details?;
    let parsed: Value = serde_json::from_str(details).ok()?;
    parsed.is_object().then(|| details.to_owned())
}

/// A step that the trace does not have.
fn step(to: State, from: Option<State>, at: Micros, code: Option<&str>) -> EarlierFact {
    let detail = match code {
        Some(code) => json!({"imported": true, "errorCode": code}),
        None => json!({"imported": true}),
    };
    EarlierFact {
        at,
        verb: verb(from, to),
        to,
        actor: None,
        detail: Some(detail.to_string()),
    }
}

/// The verb that leads to a state.
pub(super) fn verb(from: Option<State>, to: State) -> Verb {
    match (from, to) {
        (_, State::Received) => Verb::Admit,
        (_, State::Validated) => Verb::Validate,
        (_, State::Queued) => Verb::Retry,
        (Some(State::Dispatched), State::Dispatched) => Verb::Extend,
        (_, State::Dispatched) => Verb::Claim,
        (_, State::Delivered) => Verb::Deliver,
        (_, State::Acked) => Verb::Complete,
        (_, State::Failed) => Verb::Fail,
        (_, State::DeadLetter) => Verb::Kill,
    }
}

/// When a delivered intent times out.
fn result_deadline(trace: &[ForeignTraceEvent], last: Option<&EarlierFact>) -> Micros {
    let details = trace.last().and_then(|event| event.details.as_deref());
    let details: Option<Value> = details.and_then(|text| serde_json::from_str(text).ok());
    let timeout_ms = details
        .as_ref()
        .and_then(|details| details["timeoutMs"].as_i64())
        .unwrap_or(RESULT_TIMEOUT_MS);
    let at = last.map_or(Micros(0), |fact| fact.at);
    at.plus(timeout_ms.clamp(0, i64::MAX / 1_000) * 1_000)
}
