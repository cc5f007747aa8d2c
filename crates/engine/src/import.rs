//! Taking over a database of the original Intent Bus: what is taken, what is not, and why.
//!
//! Invariant: running it again takes nothing twice; ids, keys and entries that exist already stay as they are.

use std::path::Path;

use consign_kernel::command::Command;
use consign_kernel::error::Refusal;
use consign_kernel::ids::{IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf};
use consign_kernel::json;
use consign_kernel::limits;
use consign_kernel::profile::ProfileId;
use consign_kernel::record::{self, ApiKey, Kind};
use consign_kernel::state::{Cause, State};
use consign_store::sqlite::{ForeignIntent, ForeignKv, ForeignRows, IntentBusFile};

use crate::{Engine, Error, Operator, key_id};

const PAGE: u32 = 200;
/// Skipped rows that are named one by one; the rest is only counted.
const NAMED_MAX: usize = 50;

#[derive(Clone, Copy, Debug)]
pub struct ImportOptions {
    pub dry_run: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    pub intents_taken: u64,
    pub intents_present: u64,
    pub keys_taken: u64,
    pub keys_present: u64,
    pub kv_taken: u64,
    pub kv_present: u64,
    pub kv_expired: u64,
    /// Left behind on purpose: they guard against repetition for at most an hour.
    pub idempotency_left: u64,
    pub nonces_left: u64,
    pub skipped: u64,
    /// Why single rows were not taken.
    pub reasons: Vec<String>,
}

impl ImportReport {
    fn skip(&mut self, reason: String) {
        self.skipped += 1;
        if self.reasons.len() < NAMED_MAX {
            self.reasons.push(reason);
        }
    }
}

/// `progress` hears rows done and rows in all.
pub async fn import_intent_bus(
    engine: &Engine,
    operator: Operator,
    file: &Path,
    options: ImportOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<ImportReport, Error> {
    let file = IntentBusFile::open(file)?;
    let rows = file.rows()?;
    let total = rows.intents + rows.tester_keys + rows.kv_entries;
    let mut report = ImportReport {
        idempotency_left: rows.idempotency_keys,
        nonces_left: rows.nonces,
        ..ImportReport::default()
    };
    let mut done = 0;
    for key in file.keys()? {
        let known = engine.record(ApiKey::key(&key_id(&key.api_key))).await?;
        if known.is_some() {
            report.keys_present += 1;
        } else {
            if !options.dry_run {
                let created = seconds(key.created_at);
                engine
                    .adopt_key(
                        operator,
                        &key.api_key,
                        &key.owner,
                        created,
                        key.total_requests,
                    )
                    .await?;
            }
            report.keys_taken += 1;
        }
        done += 1;
        progress(done, total);
    }
    import_intents(engine, &file, rows, options, &mut report, |taken| {
        progress(rows.tester_keys + taken, total);
    })
    .await?;
    for entry in file.kv()? {
        import_kv(engine, &entry, options, &mut report).await?;
    }
    progress(total, total);
    Ok(report)
}

async fn import_intents(
    engine: &Engine,
    file: &IntentBusFile,
    rows: ForeignRows,
    options: ImportOptions,
    report: &mut ImportReport,
    mut progress: impl FnMut(u64),
) -> Result<(), Error> {
    let (mut after, mut done) = (0, 0);
    loop {
        let page = file.intents(after, PAGE)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.rowid;
        for foreign in &page {
            done += 1;
            match translate(engine, foreign, file.dead_reason(&foreign.id)?) {
                Err(reason) => report.skip(format!("intent {}: {reason}", foreign.id)),
                Ok(intent) if options.dry_run => {
                    match engine.inner.store.intent(intent.id).await? {
                        Some(_) => report.intents_present += 1,
                        None => report.intents_taken += 1,
                    }
                }
                Ok(intent) => match engine.apply(None, Command::Restore(Box::new(intent))).await {
                    Ok(_) => report.intents_taken += 1,
                    Err(Error::Refused(Refusal::Exists)) => report.intents_present += 1,
                    Err(error) => return Err(error),
                },
            }
        }
        progress(done.min(rows.intents));
    }
}

async fn import_kv(
    engine: &Engine,
    entry: &ForeignKv,
    options: ImportOptions,
    report: &mut ImportReport,
) -> Result<(), Error> {
    let expires_at = seconds(entry.expires_at);
    if expires_at <= engine.now() {
        report.kv_expired += 1;
        return Ok(());
    }
    let Some((api_key, name)) = entry.key.split_once(':') else {
        report.skip("a key-value entry without an owner".to_owned());
        return Ok(());
    };
    let key = record::Key {
        kind: Kind::Kv,
        owner: engine.publisher_id(api_key),
        name: name.to_owned(),
    };
    if engine.record(key.clone()).await?.is_some() {
        report.kv_present += 1;
        return Ok(());
    }
    if !options.dry_run {
        let put = record::Put {
            key,
            value: entry.value.clone(),
            expires_at: Some(expires_at),
            expect: Some(0),
        };
        engine.apply(None, Command::Put(put)).await?;
    }
    report.kv_taken += 1;
    Ok(())
}

fn translate(
    engine: &Engine,
    foreign: &ForeignIntent,
    dead: Option<(String, f64)>,
) -> Result<Intent, String> {
    let id: IntentId = foreign
        .id
        .parse()
        .map_err(|_| "its id is not 32 hex digits".to_owned())?;
    let payload = json::compact(foreign.payload.as_bytes(), limits::JSON_DEPTH_MAX)
        .map_err(|defect| format!("its payload is not JSON: {defect}"))?;
    let token = match foreign.claim_token.as_deref() {
        Some(text) => Token::parse(text).ok(),
        None => None,
    };
    let lease_until = foreign.claim_expires_at.map(seconds);
    let (state, cause) = match foreign.status.as_str() {
        "open" => (State::Queued, Cause::None),
        // Without a token nobody could finish it; it goes back to the queue.
        "claimed" if token.is_some() && lease_until.is_some() => (State::Dispatched, Cause::None),
        "claimed" => (State::Queued, Cause::LeaseExpired),
        "fulfilled" => (State::Acked, Cause::Completed),
        "dead" => (State::DeadLetter, Cause::Exhausted),
        other => return Err(format!("its status {other:?} is unknown")),
    };
    let held = state == State::Dispatched;
    let result = foreign.result.clone().map(|body| {
        let text = foreign.result_type.as_deref() == Some("text");
        Outcome {
            kind: if text {
                ResultKind::Text
            } else {
                ResultKind::Json
            },
            body: result_body(body, text),
        }
    });
    let ended_at = if state == State::Acked {
        foreign.completed_at
    } else {
        foreign.failed_at.or(dead.as_ref().map(|(_, at)| *at))
    };
    let ended = matches!(state, State::Acked | State::DeadLetter);
    let settled_at = ended.then(|| ended_at.map_or_else(|| engine.now(), seconds));
    let reason = dead
        .map(|(reason, _)| reason)
        .filter(|reason| !reason.is_empty());
    let backoff_s = foreign
        .backoff_base
        .clamp(limits::BACKOFF_BASE_MIN_S, limits::BACKOFF_BASE_MAX_S);
    Ok(Intent {
        seq: Seq(0),
        id,
        profile: ProfileId::Intent,
        namespace: foreign.namespace.clone(),
        goal: foreign.goal.clone(),
        owner: engine.publisher_id(&foreign.publisher),
        public: foreign.visibility == "public",
        target: foreign.target_worker.clone(),
        capability: foreign.required_capability.clone(),
        priority: i32::try_from(foreign.priority.clamp(0, limits::PRIORITY_MAX))
            .unwrap_or(limits::PRIORITY_DEFAULT),
        payload,
        traceparent: None,
        attempts: u32::try_from(foreign.claim_attempts).unwrap_or(0),
        attempts_max: u32::try_from(foreign.max_attempts)
            .unwrap_or(limits::ATTEMPTS_DEFAULT)
            .clamp(1, limits::ATTEMPTS_MAX),
        backoff_us: seconds(backoff_s).0,
        created_at: seconds(foreign.created_at),
        run_at: seconds(foreign.run_at),
        expires_at: seconds(foreign.expires_at),
        state,
        cause,
        shelf: Shelf::Ready,
        wake_at: Micros(0),
        holder: foreign
            .claimed_by
            .as_deref()
            .map(|key| engine.publisher_id(key)),
        token: token.filter(|_| held),
        claimed_at: foreign.claimed_at.map(seconds),
        lease_until: lease_until.filter(|_| held),
        settled_at,
        last_error: foreign.last_error.clone().or(reason),
        result,
    })
}

/// The original stores JSON results as JSON text; a text result may be stored either way.
fn result_body(body: String, text: bool) -> String {
    if !text {
        return json::compact(body.as_bytes(), limits::JSON_DEPTH_MAX)
            .unwrap_or_else(|_| "null".to_owned());
    }
    serde_json::from_str::<String>(&body).unwrap_or(body)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a float cast saturates, and seconds of this century fit"
)]
fn seconds(unix: f64) -> Micros {
    Micros((unix * 1e6).round() as i64)
}
