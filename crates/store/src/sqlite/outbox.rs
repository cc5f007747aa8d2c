//! The table `outbox` of a mesh daemon: the rows of its ledger, in the columns of the mesh protocol.
//!
//! Triggers write the table in the commits of the ledger. Other programs may edit it while the file is not open, so opening
//! it compares the table with the ledger and makes the edits a part of the ledger, all of them or none. Rows have their mesh
//! as namespace and owner, and what the ledger does not know of them in their payload; the body is there as hex digits.

use consign_kernel::command::{Command, OnRefusal, OnceGuard, Request, Restore};
use consign_kernel::decide::Write;
use consign_kernel::ids::{DAY_US, IntentId, Micros, Seq, Token};
use consign_kernel::intent::{Intent, Outcome, ResultKind, Shelf, Ties};
use consign_kernel::once::{OnceKey, Scope};
use consign_kernel::profile::ProfileId;
use consign_kernel::state::{Cause, State};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::checkpoint;
use super::nonces::Nonces;
use super::rows::{self, intent_columns, signed};
use super::statements::StatementCache;
use super::tx::SqliteTx;
use super::writer::read_position;
use crate::ledger::{Batch, instants};
use crate::{Clock, Error};

const SCHEMA: &str = include_str!("outbox.sql");
const UPKEEP: &str = include_str!("outbox_upkeep.sql");

/// Free space is given back to the disk this often, and only if it is a quarter of the file: SQLite uses it again anyway.
const VACUUM_EVERY_MS: i64 = 7 * DAY_US / 1_000;
const VACUUM_FREE_PARTS: i64 = 4;

/// The life of a row that another program added, if it does not follow from an earlier row: how old a message may be is known
/// only after the negotiation with a broker.
const LIFE_US: i64 = 3_650 * DAY_US;

/// What the rows of the outbox are for. A daemon claims messages and intents apart from each other.
pub const OUTBOX_SEND: &str = "send";
pub const OUTBOX_PUBLISH: &str = "publish";

/// The kind of destination of an intent that is published; all others are messages.
pub const OUTBOX_INTENT_KIND: &str = "intent";

/// The lease of a row that is in flight by an edit has ended.
const NO_HOLDER: &str = "none";

macro_rules! columns {
    ($of:literal) => {
        concat!(
            $of,
            "id, ",
            $of,
            "client_message_id, ",
            $of,
            "request_fingerprint, ",
            $of,
            "payload, ",
            $of,
            "enqueued_at, ",
            $of,
            "attempts, ",
            $of,
            "next_attempt_at, ",
            $of,
            "status, ",
            $of,
            "last_error, ",
            $of,
            "delivered_at, ",
            $of,
            "broker_message_id, ",
            $of,
            "aborted_at, ",
            $of,
            "mesh, ",
            $of,
            "target_spec, ",
            $of,
            "nonce, ",
            $of,
            "ciphertext, ",
            $of,
            "priority, ",
            $of,
            "destination_kind, ",
            $of,
            "destination_ref, ",
            $of,
            "reply_to_id, ",
            $of,
            "meta, ",
            $of,
            "body_sha256, ",
            $of,
            "envelope_version, ",
            $of,
            "history_id"
        )
    };
}

/// Rows that differ from the ledger or are not in it, each with the number of its row there. Payload and result are the
/// ledger's with the edits in them.
const EDITED: &str = concat!(
    "SELECT v.seq, o.id, o.client_message_id, o.request_fingerprint, o.enqueued_at, coalesce(o.attempts, 0), o.next_attempt_at, \
     o.status, o.last_error, o.delivered_at, o.aborted_at, o.mesh, o.destination_kind, \
     json_patch(coalesce(i.payload, '{}'), json_object('client_message_id', o.client_message_id, \
     'request_fingerprint', lower(hex(o.request_fingerprint)), 'payload', lower(hex(o.payload)), 'mesh', o.mesh, \
     'target_spec', o.target_spec, 'nonce', o.nonce, 'ciphertext', o.ciphertext, 'priority', o.priority, \
     'destination_kind', o.destination_kind, 'destination_ref', o.destination_ref, 'reply_to_id', o.reply_to_id, \
     'meta', o.meta, 'body_sha256', o.body_sha256, 'envelope_version', o.envelope_version)), \
     CASE WHEN coalesce(o.broker_message_id, o.history_id) IS NOT NULL THEN json_patch(coalesce(i.result, '{}'), \
     json_object('broker_message_id', o.broker_message_id, 'history_id', o.history_id)) END \
     FROM outbox o LEFT JOIN intents i ON i.id = unhex(replace(o.id, '-', '')) AND i.profile = 2 \
     LEFT JOIN outbox_of_ledger v ON v.seq = i.seq \
     WHERE v.seq IS NULL OR (",
    columns!("o."),
    ") IS NOT (",
    columns!("v."),
    ") ORDER BY o.enqueued_at, o.id"
);

const REMOVED: &str = "SELECT v.seq FROM outbox_of_ledger v WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE o.id = v.id)";

/// A row that another program added or changed.
struct EditedRow {
    seq: Option<i64>,
    id: String,
    client_message_id: String,
    fingerprint: Vec<u8>,
    enqueued_at: i64,
    attempts: u32,
    next_attempt_at: i64,
    status: String,
    last_error: Option<String>,
    delivered_at: Option<i64>,
    aborted_at: Option<i64>,
    mesh: Option<String>,
    destination_kind: Option<String>,
    payload: String,
    result: Option<String>,
}

impl EditedRow {
    fn goal(&self) -> &'static str {
        if self.destination_kind.as_deref() == Some(OUTBOX_INTENT_KIND) {
            OUTBOX_PUBLISH
        } else {
            OUTBOX_SEND
        }
    }
}

fn edited(row: &Row<'_>) -> rusqlite::Result<EditedRow> {
    Ok(EditedRow {
        seq: row.get(0)?,
        id: row.get(1)?,
        client_message_id: row.get(2)?,
        fingerprint: row.get(3)?,
        enqueued_at: row.get(4)?,
        attempts: row.get(5)?,
        next_attempt_at: row.get(6)?,
        status: row.get(7)?,
        last_error: row.get(8)?,
        delivered_at: row.get(9)?,
        aborted_at: row.get(10)?,
        mesh: row.get(11)?,
        destination_kind: row.get(12)?,
        payload: row.get(13)?,
        result: row.get(14)?,
    })
}

/// Creates the table in a file that has none, and otherwise applies its edits.
pub(super) fn prepare(connection: &Connection, clock: &dyn Clock) -> Result<(), Error> {
    check_integrity(connection)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done = if connection.table_exists(None, "outbox")? {
        apply_edits(connection, clock)
    } else {
        connection.execute_batch(SCHEMA).map_err(Error::from)
    };
    let done = done.and_then(|()| Ok(connection.execute_batch(UPKEEP)?));
    let done = done.and_then(|()| Ok(connection.execute_batch("COMMIT")?));
    if done.is_err() {
        // SQLite may have rolled back by itself; the first error is the cause.
        let _ = connection.execute_batch("ROLLBACK");
        return done;
    }
    if let Err(error) = vacuum_if_due(connection, clock.now().0 / 1_000) {
        // A disk that is full has no room for it, and rows can be sent nevertheless.
        tracing::warn!(%error, "the free space of the outbox was not given back");
    }
    Ok(())
}

/// The file remembers when this was done, so that a daemon that is often restarted does it as rarely as any other one. While
/// the writer has the file open there is no safe moment for it.
fn vacuum_if_due(connection: &Connection, now_ms: i64) -> Result<bool, Error> {
    let sql = "SELECT vacuumed_at FROM outbox_upkeep WHERE id = 1";
    let last = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let note = || {
        let sql = "INSERT OR REPLACE INTO outbox_upkeep (id, vacuumed_at) VALUES (1, ?1)";
        connection.execute(sql, [now_ms])
    };
    let Some(last) = last.optional()? else {
        note()?;
        return Ok(false);
    };
    if now_ms.saturating_sub(last) < VACUUM_EVERY_MS {
        return Ok(false);
    }
    let sql = "SELECT freelist_count, page_count FROM pragma_freelist_count(), pragma_page_count()";
    let (free, all): (i64, i64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let is_worth_it = free.saturating_mul(VACUUM_FREE_PARTS) >= all && free > 0;
    if is_worth_it {
        connection.execute_batch("VACUUM")?;
        checkpoint::merge_all(connection)?;
    }
    note()?;
    Ok(is_worth_it)
}

/// The outbox of a daemon is small, so the whole file is examined before anything is sent from it.
fn check_integrity(connection: &Connection) -> Result<(), Error> {
    let sql = "PRAGMA integrity_check(1)";
    let finding = connection.query_row(sql, [], |row| row.get::<_, String>(0))?;
    if finding == "ok" {
        Ok(())
    } else {
        Err(Error::Corrupt(finding))
    }
}

fn apply_edits(connection: &Connection, clock: &dyn Clock) -> Result<(), Error> {
    let edits: Vec<EditedRow> = connection
        .prepare(EDITED)?
        .query_map([], edited)?
        .collect::<Result<_, _>>()?;
    let removed: Vec<i64> = connection
        .prepare(REMOVED)?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if edits.is_empty() && removed.is_empty() {
        return Ok(());
    }
    let mut position = read_position(connection)?;
    let mut prepared = StatementCache::new(connection);
    let mut nonces = Nonces::default();
    let mut tx = SqliteTx::new(&mut prepared, &mut nonces);
    let mut batch = Batch::new(&mut tx, instants(clock), &mut position);
    let now = clock.now();
    for seq in removed {
        let row = by_seq(connection, seq)?;
        forget_key(connection, &row)?;
        batch.write(Write::Remove(row))?;
    }
    // The ledger's rows go first, and their triggers write the table again: an id may have moved from one row to another.
    let mut restored = Vec::with_capacity(edits.len());
    for edit in edits {
        let earlier = edit.seq.map(|seq| by_seq(connection, seq)).transpose()?;
        connection.execute("DELETE FROM outbox WHERE id = ?1", [&edit.id])?;
        if let Some(row) = &earlier {
            forget_key(connection, row)?;
            batch.write(Write::Remove(row.clone()))?;
        }
        restored.push(restore(&edit, earlier, now)?);
    }
    let request = Request {
        gate: None,
        steps: Vec::new(),
        on_refusal: OnRefusal::Continue,
        seed: [0; 32],
    };
    for restore in restored {
        let id = restore.intent.id;
        let steps = vec![Command::Restore(Box::new(restore))];
        let reply = batch.run(&Request {
            steps,
            ..request.clone()
        })?;
        let refused = reply.into_iter().flatten().find_map(Result::err);
        if let Some(refusal) = refused {
            return Err(Error::Corrupt(format!(
                "the edit of the outbox row {id} contradicts another row: {refusal:?}"
            )));
        }
    }
    batch.finish()?;
    tx.finish()?;
    let sql = "UPDATE position SET last_time = ?1, last_seq = ?2, last_fact = ?3 WHERE id = 1";
    let at = (position.time.0, signed(position.seq), signed(position.fact));
    connection.execute(sql, at)?;
    Ok(())
}

fn by_seq(connection: &Connection, seq: i64) -> Result<Intent, Error> {
    let sql = concat!("SELECT ", intent_columns!(), " FROM intents WHERE seq = ?1");
    Ok(connection.query_row(sql, [seq], rows::intent)?)
}

/// The once-key under which a row was admitted.
fn forget_key(connection: &Connection, row: &Intent) -> Result<(), Error> {
    let sql = "DELETE FROM once WHERE scope = ?1 AND intent = ?2 AND owner = ?3";
    let key = params![Scope::MeshOutbox.code(), row.id.0, row.namespace];
    connection.execute(sql, key)?;
    Ok(())
}

/// The row as the edit describes it. What the edit leaves alone stays as it was, and a moved beginning moves the end of the
/// life as well.
fn restore(edit: &EditedRow, earlier: Option<Intent>, now: Micros) -> Result<Restore, Error> {
    let fingerprint = edit.fingerprint.as_slice().try_into().map_err(|_| {
        Error::Corrupt(format!(
            "the outbox row {} has a fingerprint of {} bytes",
            edit.id,
            edit.fingerprint.len()
        ))
    })?;
    let created_at = micros(edit.enqueued_at);
    let mut intent = earlier.unwrap_or_else(|| added(edit, created_at));
    if intent.created_at.0 / 1_000 != edit.enqueued_at {
        let life_us = intent.expires_at.0.saturating_sub(intent.created_at.0);
        intent.created_at = created_at;
        intent.expires_at = created_at.plus(life_us);
    }
    if intent.run_at.0 / 1_000 != edit.next_attempt_at {
        intent.run_at = micros(edit.next_attempt_at);
    }
    if [edit.goal(), &intent.goal].contains(&OUTBOX_PUBLISH) {
        edit.goal().clone_into(&mut intent.goal);
    }
    intent.attempts = edit.attempts;
    intent.last_error.clone_from(&edit.last_error);
    intent.payload.clone_from(&edit.payload);
    intent.result = edit.result.clone().map(|body| Outcome {
        kind: ResultKind::Json,
        body,
    });
    set_status(&mut intent, edit, now);
    let once = OnceGuard {
        key: OnceKey {
            scope: Scope::MeshOutbox,
            owner: intent.namespace.clone(),
            key: edit.client_message_id.clone(),
        },
        fingerprint,
        lifetime_us: i64::MAX,
    };
    Ok(Restore {
        once: Some(once),
        ..Restore::bare(intent)
    })
}

fn set_status(intent: &mut Intent, edit: &EditedRow, now: Micros) {
    let profile = intent.profile.profile();
    let is_the_same = profile.word(intent.state, intent.cause) == Some(edit.status.as_str());
    let settled_at = edit.delivered_at.or(edit.aborted_at).map(micros);
    if !is_the_same {
        intent.release();
        intent.forget_holder();
        (intent.state, intent.cause) = match edit.status.as_str() {
            "inflight" => (State::Dispatched, Cause::None),
            "done" => (State::Acked, Cause::Completed),
            "dead" => (State::DeadLetter, Cause::Rejected),
            "aborted" => (State::DeadLetter, Cause::Aborted),
            _ => (State::Queued, Cause::None),
        };
        if intent.state == State::Dispatched {
            intent.holder = Some(NO_HOLDER.to_owned());
            intent.token = Some(Token(intent.id.0));
            intent.claimed_at = Some(now);
            intent.lease_until = Some(now);
        }
        intent.settled_at = Some(now);
    }
    intent.settled_at = if profile.is_terminal(intent.state) {
        settled_at.or(intent.settled_at)
    } else {
        None
    };
}

fn micros(ms: i64) -> Micros {
    Micros(ms.saturating_mul(1_000))
}

/// A row that no program of ours has made. An id that is no UUID gives one that follows from it.
fn added(edit: &EditedRow, created_at: Micros) -> Intent {
    let id = edit.id.replace('-', "").to_ascii_lowercase().parse();
    let id = id.unwrap_or_else(|_| {
        let hash = blake3::hash(edit.id.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        IntentId(id)
    });
    let mesh = edit.mesh.clone().unwrap_or_default();
    Intent {
        seq: Seq(0),
        id,
        profile: ProfileId::MeshOutbox,
        namespace: mesh.clone(),
        goal: edit.goal().to_owned(),
        owner: mesh,
        public: false,
        target: None,
        capability: None,
        priority: 0,
        payload: String::new(),
        traceparent: None,
        ties: Ties::default(),
        attempts: 0,
        attempts_max: u32::MAX,
        backoff_us: 0,
        created_at,
        run_at: created_at,
        expires_at: created_at.plus(LIFE_US),
        state: State::Queued,
        cause: Cause::None,
        shelf: Shelf::Ready,
        wake_at: Micros::MAX,
        holder: None,
        token: None,
        claimed_at: None,
        lease_until: None,
        settled_at: None,
        last_error: None,
        result: None,
        last_fact: None,
        worker: None,
    }
}
