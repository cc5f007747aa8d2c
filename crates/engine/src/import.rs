//! Import of a database of the original Intent Bus.
//!
//! Invariant: a second import adds nothing twice; ids, keys and entries that exist stay unchanged. A row that cannot
//! be imported is reported and counted, and the import continues.

mod translate;

use std::path::Path;

use consign_kernel::command::{Command, Restore};
use consign_kernel::error::Refusal;
use consign_kernel::limits;
use consign_kernel::record::{self, ApiKey, Kind};
use consign_store::TypedReads as _;
use consign_store::sqlite::{
    ForeignIntent, ForeignKey, ForeignKv, ForeignRows, IntentBusFile, UnreadableRow,
};

use crate::{Engine, Error, Operator, key_id};
use translate::{instant, shown, translate};

const PAGE: u32 = 200;
/// Skipped rows that are reported one by one; the rest is only counted.
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
    /// Not imported on purpose: they prevent repetition for at most an hour.
    pub idempotency_left: u64,
    pub nonces_left: u64,
    pub skipped: u64,
    /// Why rows were skipped.
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

/// `progress` receives the rows done and the total.
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
        match key {
            Ok(key) => import_key(engine, operator, &key, options, &mut report).await?,
            Err(row) => report.skip(format!("key in row {}: {}", row.rowid, row.reason)),
        }
        done += 1;
        progress(done, total);
    }
    import_intents(engine, &file, rows, options, &mut report, |taken| {
        progress(rows.tester_keys + taken, total);
    })
    .await?;
    for entry in file.kv()? {
        match entry {
            Ok(entry) => import_kv(engine, &entry, options, &mut report).await?,
            Err(row) => report.skip(format!("value in row {}: {}", row.rowid, row.reason)),
        }
    }
    progress(total, total);
    Ok(report)
}

async fn import_key(
    engine: &Engine,
    operator: Operator,
    key: &ForeignKey,
    options: ImportOptions,
    report: &mut ImportReport,
) -> Result<(), Error> {
    // The key is a secret, so a reason contains its id.
    let id = key_id(&key.api_key);
    if key.api_key.is_empty() {
        report.skip(format!("key {id}: it is empty"));
        return Ok(());
    }
    let created_at = match instant("created_at", key.created_at) {
        Ok(created_at) => created_at,
        Err(reason) => {
            report.skip(format!("key {id}: {reason}"));
            return Ok(());
        }
    };
    if engine.record(ApiKey::key(&id)).await?.is_some() {
        report.keys_present += 1;
        return Ok(());
    }
    if !options.dry_run {
        let (owner, requests) = (&key.owner, key.total_requests);
        engine
            .adopt_key(operator, &key.api_key, owner, created_at, requests)
            .await?;
    }
    report.keys_taken += 1;
    Ok(())
}

async fn import_intents(
    engine: &Engine,
    file: &IntentBusFile,
    rows: ForeignRows,
    options: ImportOptions,
    report: &mut ImportReport,
    mut progress: impl FnMut(u64),
) -> Result<(), Error> {
    // Row ids may be negative.
    let (mut next, mut done) = (Some(i64::MIN), 0);
    while let Some(from) = next {
        let page = file.intents(from, PAGE)?;
        next = page.last().and_then(|last| rowid(last).checked_add(1));
        for row in &page {
            done += 1;
            match row {
                Ok(foreign) => import_intent(engine, file, foreign, options, report).await?,
                Err(row) => {
                    let id = row.id.as_deref().map_or_else(String::new, |id| {
                        let id = shown(id);
                        format!("{id} ")
                    });
                    report.skip(format!("intent {id}in row {}: {}", row.rowid, row.reason));
                }
            }
        }
        progress(done.min(rows.intents));
    }
    Ok(())
}

fn rowid(row: &Result<ForeignIntent, UnreadableRow>) -> i64 {
    match row {
        Ok(foreign) => foreign.rowid,
        Err(unreadable) => unreadable.rowid,
    }
}

async fn import_intent(
    engine: &Engine,
    file: &IntentBusFile,
    foreign: &ForeignIntent,
    options: ImportOptions,
    report: &mut ImportReport,
) -> Result<(), Error> {
    let intent = match translate(engine, foreign, file.dead_reason(&foreign.id)?) {
        Ok(intent) => intent,
        Err(reason) => {
            let (id, row) = (shown(&foreign.id), foreign.rowid);
            report.skip(format!("intent {id} in row {row}: {reason}"));
            return Ok(());
        }
    };
    if options.dry_run {
        match engine.inner.store.intent(intent.id).await? {
            Some(_) => report.intents_present += 1,
            None => report.intents_taken += 1,
        }
        return Ok(());
    }
    let restore = Command::Restore(Box::new(Restore::bare(intent)));
    match engine.apply(None, restore).await {
        Ok(_) => report.intents_taken += 1,
        Err(Error::Refused(Refusal::Exists)) => report.intents_present += 1,
        Err(error) => return Err(error),
    }
    Ok(())
}

async fn import_kv(
    engine: &Engine,
    entry: &ForeignKv,
    options: ImportOptions,
    report: &mut ImportReport,
) -> Result<(), Error> {
    // The text before the colon is an API key; no reason may contain it.
    let Some((api_key, name)) = entry.key.split_once(':') else {
        report.skip("a value without an owner".to_owned());
        return Ok(());
    };
    let expires_at = match fitting(name, entry) {
        Ok(()) => instant("expires_at", entry.expires_at),
        Err(reason) => Err(reason),
    };
    let expires_at = match expires_at {
        Ok(expires_at) => expires_at,
        Err(reason) => {
            report.skip(format!("value {}: {reason}", shown(name)));
            return Ok(());
        }
    };
    if expires_at <= engine.now() {
        report.kv_expired += 1;
        return Ok(());
    }
    let key = record::Key {
        kind: Kind::Kv,
        owner: engine.id_of_key(api_key),
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

fn fitting(name: &str, entry: &ForeignKv) -> Result<(), String> {
    if name.len() > limits::KV_KEY_BYTES_MAX {
        return Err(format!(
            "its key has more than {} bytes",
            limits::KV_KEY_BYTES_MAX
        ));
    }
    if entry.value.len() > limits::BODY_BYTES_MAX {
        return Err(format!("it has more than {} bytes", limits::BODY_BYTES_MAX));
    }
    Ok(())
}
