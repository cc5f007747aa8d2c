//! Messages of a bus.

use consign_engine::{Error, ForeignMessage};
use consign_kernel::command::{EarlierFact, OnceGuard, Restore};
use consign_kernel::ids::{IntentId, Micros, SECOND_US, Seq};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf, Ties};
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{Cause, State};
use sha2::{Digest as _, Sha256};

use super::instants::{maybe_seconds, seconds};
use super::intents::verb;
use super::{BeamImport, PAGE, WAITS_US, bounded, imported_holder, shown};
use crate::bus::{
    ATTEMPTS_MAX, MessageContent, NAMESPACE, NONCE_LIFETIME_US, content_fingerprint, nonce_key,
};
use crate::lifecycle::legacy::status_of_row;
use crate::text::{self, BeamObject, BeamValue};

impl<P: FnMut(u64, u64)> BeamImport<'_, P> {
    pub(super) async fn import_messages(&mut self) -> Result<(), Error> {
        let mut cursor = None;
        loop {
            let page = self.file.messages(cursor.as_ref(), PAGE)?;
            self.advance(&page);
            let mut rows = Vec::new();
            for row in page.rows {
                match row {
                    Ok(foreign) => {
                        let name = format!("message {}", shown(&foreign.id));
                        match translate(foreign, self.engine.now()) {
                            Ok(restore) => rows.push((name, restore)),
                            Err(reason) => self.report.skip(format!("{name}: {reason}")),
                        }
                    }
                    Err(row) => self.report.skip_unreadable("message", &row),
                }
            }
            let (taken, present) = self.restore(rows).await?;
            self.report.messages_taken += taken;
            self.report.messages_present += present;
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(()),
            }
        }
    }
}

/// The times of a message.
struct MessageTimes {
    created: Micros,
    delivered: Option<Micros>,
    settled: Option<Micros>,
}

pub(super) fn translate(foreign: ForeignMessage, now: Micros) -> Result<Restore, String> {
    bounded(&[
        Some(&foreign.payload),
        Some(&foreign.intent),
        foreign.response.as_deref(),
        foreign.metadata.as_deref(),
        foreign.error.as_deref(),
    ])?;
    let nonce = match foreign.nonce.as_deref() {
        Some(nonce) if !nonce.is_empty() => nonce.to_owned(),
        _ => foreign.id.clone(),
    };
    let state = status_of_row(&foreign.status);
    let times = times(&foreign, state)?;
    let next_retry_at = maybe_seconds("next_retry_at", foreign.next_retry_at)?;
    let payload = object("payload", &foreign.payload)?;
    let once = OnceGuard {
        key: nonce_key(&nonce),
        fingerprint: content_fingerprint(
            &foreign.sender,
            &foreign.recipient,
            &foreign.intent,
            &payload,
        ),
        lifetime_us: NONCE_LIFETIME_US,
    };
    // A row with a holder counts the attempt that no other one has followed.
    let was_held = match state {
        State::Received | State::Validated | State::Queued => false,
        State::Failed => times.delivered.is_some(),
        State::Dispatched | State::Delivered | State::Acked | State::DeadLetter => true,
    };
    let retries = count(foreign.retry_count.unwrap_or(0));
    let run_at = if state == State::Queued {
        next_retry_at.unwrap_or(now)
    } else {
        times.delivered.unwrap_or(times.created)
    };
    let has_error = foreign.error.is_some();
    let intent = Intent {
        seq: Seq(0),
        id: row_id(&foreign.id),
        profile: ProfileId::BeamBus,
        namespace: NAMESPACE.to_owned(),
        payload: content(nonce, payload, &foreign)?,
        goal: foreign.intent,
        owner: foreign.recipient,
        public: true,
        target: None,
        capability: None,
        priority: i32::try_from(foreign.priority.unwrap_or(0)).unwrap_or(0),
        traceparent: None,
        ties: Ties {
            sender: Some(foreign.sender),
            ..Ties::default()
        },
        attempts: retries.saturating_add(u32::from(was_held)),
        attempts_max: count(foreign.max_retries.unwrap_or(ATTEMPTS_MAX.into())).max(1),
        backoff_us: SECOND_US,
        created_at: times.created,
        run_at,
        expires_at: now.plus(WAITS_US),
        state,
        cause: match state {
            State::Acked => Cause::Completed,
            State::Queued if has_error => Cause::WorkerFailed,
            State::Failed | State::DeadLetter => Cause::Rejected,
            State::Received
            | State::Validated
            | State::Queued
            | State::Dispatched
            | State::Delivered => Cause::None,
        },
        shelf: Shelf::Ready,
        wake_at: Micros(0),
        holder: was_held.then(imported_holder),
        token: None,
        claimed_at: None,
        lease_until: (state == State::Dispatched).then(|| now.plus(WAITS_US)),
        settled_at: times.settled,
        last_error: foreign.error,
        result: foreign.response.map(|body| response(&body)).transpose()?,
        last_fact: None,
        worker: None,
    };
    let history = history(&intent, &times);
    Ok(Restore {
        intent,
        history,
        once: Some(once),
    })
}

fn times(foreign: &ForeignMessage, state: State) -> Result<MessageTimes, String> {
    let created_at = seconds("created_at", foreign.created_at)?;
    let delivered_at = maybe_seconds("delivered_at", foreign.delivered_at)?;
    let acked_at = maybe_seconds("acked_at", foreign.acked_at)?;
    let failed_at = maybe_seconds("failed_at", foreign.failed_at)?;
    // A row without the time of its end stays without it.
    let settled_at = match state {
        State::Acked => acked_at,
        State::Failed | State::DeadLetter => failed_at,
        State::Received
        | State::Validated
        | State::Queued
        | State::Dispatched
        | State::Delivered => None,
    };
    Ok(MessageTimes {
        created: created_at,
        delivered: delivered_at,
        settled: settled_at,
    })
}

/// The legal steps to the state, at the times that the row has.
fn history(row: &Intent, times: &MessageTimes) -> Vec<EarlierFact> {
    let mut walk = vec![(State::Received, times.created)];
    let delivered_at = times.delivered.unwrap_or(times.created);
    let was_attempted = row.attempts > 0;
    if was_attempted && row.state != State::Received {
        walk.push((State::Dispatched, times.created));
    }
    let was_delivered = matches!(row.state, State::Delivered | State::Acked)
        || row.state == State::Failed && row.holder.is_some();
    if was_delivered {
        walk.push((State::Delivered, delivered_at));
    }
    if walk.last().is_some_and(|(state, _)| *state != row.state) {
        let last_at = walk.last().map_or(times.created, |(_, at)| *at);
        walk.push((row.state, row.settled_at.unwrap_or(last_at)));
    }
    let mut from = None;
    let steps = walk.into_iter().map(|(to, at)| {
        let step = EarlierFact {
            at,
            verb: verb(from, to),
            to,
            actor: None,
            detail: None,
        };
        from = Some(to);
        step
    });
    steps.collect()
}

/// The id of the message, so that its recipient can acknowledge it. Another text than 32 hex digits is replaced by digits that
/// follow from it.
fn row_id(id: &str) -> IntentId {
    let derived = || {
        let digest: [u8; 32] = Sha256::new()
            .chain_update("beam bus message\0")
            .chain_update(id)
            .finalize()
            .into();
        IntentId(digest[..16].try_into().expect("a digest has 32 bytes"))
    };
    id.parse().unwrap_or_else(|_| derived())
}

/// What a message has besides the columns of its row.
fn content(nonce: String, payload: BeamObject, foreign: &ForeignMessage) -> Result<String, String> {
    let metadata = match &foreign.metadata {
        None => None,
        Some(stored) => {
            let parsed = text::parse(stored.as_bytes());
            Some(parsed.map_err(|defect| format!("its metadata is not JSON: {defect}"))?)
        }
    };
    let content = MessageContent {
        nonce,
        payload,
        trace_id: foreign.trace_id.clone(),
        metadata,
    };
    Ok(content.to_text())
}

fn object(column: &str, stored: &str) -> Result<BeamObject, String> {
    match text::parse(stored.as_bytes()) {
        Ok(BeamValue::Object(object)) => Ok(object),
        Ok(_) => Err(format!("its {column} is no object")),
        Err(defect) => Err(format!("its {column} is not JSON: {defect}")),
    }
}

fn response(stored: &str) -> Result<Outcome, String> {
    let value = text::parse(stored.as_bytes())
        .map_err(|defect| format!("its response is not JSON: {defect}"))?;
    Ok(Outcome {
        kind: ResultKind::Json,
        body: value.to_text(),
    })
}

fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}
