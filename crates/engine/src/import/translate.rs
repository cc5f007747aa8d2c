//! Translates an intent of the original server, or returns the reason why it cannot be imported.
//!
//! Invariant: the result keeps every limit that a publish keeps. Keys are mapped by their digest alone, so a file
//! that contains `main` or a key id in place of a key gets no access to that key's intents.

use consign_kernel::error_text;
use consign_kernel::ids::{IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf, Ties};
use consign_kernel::json;
use consign_kernel::limits;
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{Cause, State};
use consign_store::sqlite::ForeignIntent;

use crate::Engine;

/// The last second whose microseconds a double can represent, in the year 2255.
const INSTANT_S_MAX: f64 = 9_007_199_254.0;
/// Longer texts of the file are cut in error reasons.
const SHOWN_CHARS_MAX: usize = 64;

pub(super) fn translate(
    engine: &Engine,
    foreign: &ForeignIntent,
    dead: Option<(String, Option<f64>)>,
) -> Result<Intent, String> {
    let id: IntentId = foreign
        .id
        .parse()
        .map_err(|_| "its id is not 32 hex digits".to_owned())?;
    let token = match foreign.claim_token.as_deref() {
        Some(text) => Token::parse(text).ok(),
        None => None,
    };
    let lease_until = maybe_instant("claim_expires_at", foreign.claim_expires_at)?;
    let (state, cause) = match foreign.status.as_str() {
        "open" => (State::Queued, Cause::None),
        // Without a token the lease cannot be settled, so the intent returns to the queue.
        "claimed" if token.is_some() && lease_until.is_some() => (State::Dispatched, Cause::None),
        "claimed" => (State::Queued, Cause::LeaseExpired),
        "fulfilled" => (State::Acked, Cause::Completed),
        "dead" => (State::DeadLetter, Cause::Exhausted),
        other => return Err(format!("its status {:?} is unknown", shown(other))),
    };
    let held = state == State::Dispatched;
    let (reason, dead_at) = dead.unwrap_or_default();
    let (completed_at, failed_at) = (
        maybe_instant("completed_at", foreign.completed_at)?,
        maybe_instant("failed_at", foreign.failed_at.or(dead_at))?,
    );
    let ended_at = if state == State::Acked {
        completed_at
    } else {
        failed_at
    };
    let ended = matches!(state, State::Acked | State::DeadLetter);
    let settled_at = ended.then(|| ended_at.unwrap_or_else(|| engine.now()));
    let last_error = foreign
        .last_error
        .clone()
        .or(Some(reason).filter(|reason| !reason.is_empty()));
    let backoff_s = foreign
        .backoff_base
        .clamp(limits::BACKOFF_BASE_MIN_S, limits::BACKOFF_BASE_MAX_S);
    Ok(Intent {
        seq: Seq(0),
        id,
        profile: ProfileId::Intent,
        namespace: namespace(&foreign.namespace)?,
        goal: goal(&foreign.goal)?,
        owner: engine.id_of_key(&foreign.publisher),
        public: foreign.visibility == "public",
        target: label("target_worker", foreign.target_worker.as_deref())?,
        capability: label(
            "required_capability",
            foreign.required_capability.as_deref(),
        )?,
        priority: i32::try_from(foreign.priority.clamp(0, limits::PRIORITY_MAX))
            .unwrap_or(limits::PRIORITY_DEFAULT),
        payload: payload(&foreign.payload)?,
        ties: Ties::default(),
        traceparent: None,
        attempts: u32::try_from(foreign.claim_attempts).unwrap_or(0),
        attempts_max: u32::try_from(foreign.max_attempts)
            .unwrap_or(limits::ATTEMPTS_DEFAULT)
            .clamp(1, limits::ATTEMPTS_MAX),
        backoff_us: micros(backoff_s).0,
        created_at: instant("created_at", foreign.created_at)?,
        run_at: instant("run_at", foreign.run_at)?,
        expires_at: instant("expires_at", foreign.expires_at)?,
        state,
        cause,
        shelf: Shelf::Ready,
        wake_at: Micros(0),
        holder: foreign
            .claimed_by
            .as_deref()
            .map(|key| engine.id_of_key(key)),
        token: token.filter(|_| held),
        claimed_at: maybe_instant("claimed_at", foreign.claimed_at)?,
        lease_until: lease_until.filter(|_| held),
        settled_at,
        last_error: last_error.map(|text| error_text::kept(&text).into_owned()),
        result: outcome(foreign)?,
        last_fact: None,
        worker: None,
    })
}

fn namespace(text: &str) -> Result<String, String> {
    let fits = (1..=limits::NAMESPACE_CHARS_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
    if !fits {
        return Err(format!(
            "its namespace {:?} is not 1-{} characters of letters, digits, '.', '-', '_'",
            shown(text),
            limits::NAMESPACE_CHARS_MAX
        ));
    }
    if text.starts_with("beam.") || text.starts_with("mesh.") {
        return Err(format!("its namespace {text:?} is reserved"));
    }
    Ok(text.to_owned())
}

fn goal(text: &str) -> Result<String, String> {
    let goal = text.trim();
    if (1..=limits::GOAL_CHARS_MAX).contains(&goal.chars().count()) {
        return Ok(goal.to_owned());
    }
    Err(format!(
        "its goal is not 1-{} characters long",
        limits::GOAL_CHARS_MAX
    ))
}

fn label(column: &str, text: Option<&str>) -> Result<Option<String>, String> {
    let Some(text) = text else { return Ok(None) };
    let fits = (1..=limits::LABEL_CHARS_MAX).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'-'));
    if fits {
        return Ok(Some(text.to_owned()));
    }
    Err(format!(
        "its {column} {:?} is not 1-{} characters of letters, digits, '_', '.', ':', '-'",
        shown(text),
        limits::LABEL_CHARS_MAX
    ))
}

fn payload(text: &str) -> Result<String, String> {
    let payload = json::compact(text.as_bytes(), limits::JSON_DEPTH_MAX)
        .map_err(|defect| format!("its payload is not JSON: {defect}"))?;
    let length = json::utf8_len(&payload);
    bounded("payload", length, limits::PAYLOAD_BYTES_MAX)?;
    Ok(payload)
}

/// The original stores JSON results as JSON text; a text result may be stored either way.
fn outcome(foreign: &ForeignIntent) -> Result<Option<Outcome>, String> {
    let Some(stored) = &foreign.result else {
        return Ok(None);
    };
    let (kind, body, length) = if foreign.result_type.as_deref() == Some("text") {
        let body = serde_json::from_str::<String>(stored).unwrap_or_else(|_| stored.clone());
        let length = body.len();
        (ResultKind::Text, body, length)
    } else {
        let body = json::compact(stored.as_bytes(), limits::JSON_DEPTH_MAX)
            .map_err(|defect| format!("its result is not JSON: {defect}"))?;
        let length = json::utf8_len(&body);
        (ResultKind::Json, body, length)
    };
    bounded("result", length, limits::RESULT_BYTES_MAX)?;
    Ok(Some(Outcome { kind, body }))
}

fn bounded(column: &str, bytes: usize, bytes_max: usize) -> Result<(), String> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(format!(
        "its {column} has {bytes} bytes, and {bytes_max} are allowed"
    ))
}

fn maybe_instant(column: &str, unix: Option<f64>) -> Result<Option<Micros>, String> {
    unix.map(|unix| instant(column, unix)).transpose()
}

/// An instant between 1970 and the end of exact microseconds.
pub(super) fn instant(column: &str, unix: f64) -> Result<Micros, String> {
    // NaN is in no range.
    if (0.0..=INSTANT_S_MAX).contains(&unix) {
        return Ok(micros(unix));
    }
    Err(format!(
        "its {column} {unix:e} is no time in seconds since 1970"
    ))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the callers bound it to what 53 bits hold"
)]
fn micros(seconds: f64) -> Micros {
    Micros((seconds * 1e6).round() as i64)
}

/// The beginning of a text of the file, short enough for a line.
pub(super) fn shown(text: &str) -> &str {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

#[cfg(test)]
mod tests;
