//! The table `mesh.client_message_dedupe`: the once-keys of mesh messages, in the columns of the mesh protocol.

use consign_kernel::ids::{IntentId, Micros};
use consign_kernel::once::{DedupeAnswer, FirstUse, OnceKey, Scope};

use super::row_encoder::RowEncoder;
use super::rows::{SqlRow, bytes, get, stored, text};
use crate::Error;

/// Microseconds of a column with a time.
macro_rules! micros {
    ($column:literal) => {
        concat!("(extract(epoch FROM ", $column, ") * 1000000)::bigint")
    };
}

/// Columns in the order [`row`] reads them.
macro_rules! columns {
    () => {
        concat!(
            "d.mesh_id, d.client_message_id, d.request_fingerprint, uuid_send(d.broker_message_id), d.destination_kind, \
             d.destination_ref, ",
            micros!("d.first_seen_at"),
            ", ",
            micros!("d.expires_at"),
            ", d.history_available"
        )
    };
}

/// The time of an instant in microseconds.
macro_rules! instant {
    ($micros:literal) => {
        concat!(
            "'epoch'::timestamptz + ",
            $micros,
            " * interval '1 microsecond'"
        )
    };
}

/// Keys are sorted. A lookup for each key, and no join.
pub(super) const LOAD: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM unnest($1::text[], $2::text[]) AS k (mesh, key), LATERAL (SELECT * FROM mesh.client_message_dedupe \
     WHERE mesh_id = k.mesh AND client_message_id = k.key FOR UPDATE) d"
);

pub(super) const GET: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM mesh.client_message_dedupe d WHERE d.mesh_id = $1 AND d.client_message_id = $2"
);

/// After a key, in the order of the keys.
pub(super) const PAGE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM mesh.client_message_dedupe d WHERE (d.mesh_id, d.client_message_id) > ($1, $2) \
     ORDER BY d.mesh_id, d.client_message_id LIMIT $3"
);

macro_rules! put {
    ($and:literal) => {
        concat!(
            "INSERT INTO mesh.client_message_dedupe (mesh_id, client_message_id, broker_message_id, request_fingerprint, \
             destination_kind, destination_ref, first_seen_at, expires_at, history_available) \
             SELECT mesh_id, client_message_id, encode(broker_message_id, 'hex')::uuid, request_fingerprint, \
             destination_kind, destination_ref, ",
            instant!("first_seen_at"),
            ", ",
            instant!("expires_at"),
            ", history_available FROM unnest($1::accepted_message[])",
            $and
        )
    };
}

/// An id that did not exist when it was read was used by another node meanwhile: the error makes this transaction retry.
pub(super) const PUT: &str = put!("");

/// For expired keys, which are locked.
pub(super) const PUT_AGAIN: &str = put!(
    " ON CONFLICT (mesh_id, client_message_id) DO UPDATE SET broker_message_id = excluded.broker_message_id, \
     request_fingerprint = excluded.request_fingerprint, destination_kind = excluded.destination_kind, \
     destination_ref = excluded.destination_ref, first_seen_at = excluded.first_seen_at, \
     expires_at = excluded.expires_at, history_available = excluded.history_available"
);

/// Keys are sorted, so that transactions that remove messages cannot deadlock.
pub(super) const MESSAGES_GONE: &str = "UPDATE mesh.client_message_dedupe d SET history_available = FALSE \
    FROM unnest($1::text[], $2::text[], $3::bytea[]) AS k (mesh, key, message) \
    WHERE d.mesh_id = k.mesh AND d.client_message_id = k.key AND uuid_send(d.broker_message_id) = k.message";

pub(super) const FORGET_OVER: &str = concat!(
    "DELETE FROM mesh.client_message_dedupe WHERE (mesh_id, client_message_id) IN \
     (SELECT mesh_id, client_message_id FROM mesh.client_message_dedupe WHERE expires_at <= ",
    instant!("$1::bigint"),
    " ORDER BY expires_at, mesh_id, client_message_id LIMIT $2 FOR UPDATE SKIP LOCKED)"
);

pub(super) const FORGET_OWNER: &str = "DELETE FROM mesh.client_message_dedupe WHERE mesh_id = $1";

pub(super) const FORGET_FIRST: &str = "DELETE FROM mesh.client_message_dedupe WHERE (mesh_id, client_message_id) IN \
    (SELECT mesh_id, client_message_id FROM mesh.client_message_dedupe ORDER BY mesh_id, client_message_id LIMIT $1 FOR UPDATE)";

/// Whether the row says that its message exists, although it does not.
macro_rules! lost {
    () => {
        "(d.history_available AND NOT EXISTS (SELECT 1 FROM intents i WHERE i.id = uuid_send(d.broker_message_id)))"
    };
}

pub(super) const NOTE_LOST: &str = concat!(
    "UPDATE mesh.client_message_dedupe d SET history_available = FALSE FROM unnest($1::text[], $2::text[]) AS k (mesh, key) \
     WHERE d.mesh_id = k.mesh AND d.client_message_id = k.key AND ",
    lost!()
);

pub(super) const LOST: &str = concat!(
    "SELECT d.mesh_id, d.client_message_id, ",
    lost!(),
    " FROM mesh.client_message_dedupe d WHERE (d.mesh_id, d.client_message_id) > ($1, $2) \
     ORDER BY d.mesh_id, d.client_message_id LIMIT $3"
);

pub(super) const ENDING: &str = concat!(
    "SELECT (SELECT count(*) FROM intents WHERE shelf = 0 AND wake_at <= $1 AND profile = 7), \
     (SELECT count(*) FROM mesh.client_message_dedupe WHERE expires_at <= ",
    instant!("$1::bigint"),
    ")"
);

pub(super) fn row(row: &impl SqlRow) -> Result<FirstUse, Error> {
    let answer = DedupeAnswer {
        destination_kind: text(row, 4)?,
        destination_ref: text(row, 5)?,
        first_seen_at: get(row, 6)?,
        history_available: get(row, 8)?,
    };
    // One of another length equals no request's.
    let stored: &[u8] = get(row, 2)?;
    let mut fingerprint = [0; 32];
    let length = stored.len().min(32);
    fingerprint[..length].copy_from_slice(&stored[..length]);
    Ok(FirstUse {
        key: OnceKey {
            scope: Scope::MeshMessage,
            owner: text(row, 0)?,
            key: text(row, 1)?,
        },
        fingerprint,
        intent: Some(IntentId(bytes(row, 3)?)),
        answer: answer.text(),
        until: get::<Option<i64>>(row, 7)?.map_or(Micros::MAX, Micros),
    })
}

/// The row as a value of the type `accepted_message`.
pub(super) fn encoded(used: &FirstUse) -> Result<RowEncoder, Error> {
    let answer = DedupeAnswer::parse(&used.answer)
        .ok_or_else(|| Error::Corrupt(format!("{:?} answers no message", used.answer)))?;
    let mut cells = RowEncoder::with_capacity(256);
    cells.text(used.key.owner.as_str());
    cells.text(used.key.key.as_str());
    cells.bytes(&used.intent.unwrap_or(IntentId([0; 16])).0[..]);
    cells.bytes(&used.fingerprint[..]);
    cells.text(answer.destination_kind.as_str());
    cells.text(answer.destination_ref.as_str());
    cells.int8(answer.first_seen_at);
    cells.int8((used.until < Micros::MAX).then_some(used.until.0));
    cells.boolean(answer.history_available);
    Ok(cells)
}

/// Keys of messages as the arrays of a statement, sorted.
pub(super) fn keys<'k>(keys: impl Iterator<Item = &'k OnceKey>) -> (Vec<String>, Vec<String>) {
    let mut keys: Vec<&OnceKey> = keys.collect();
    keys.sort_unstable();
    let stored = |key: &OnceKey| {
        (
            stored(&key.owner).into_owned(),
            stored(&key.key).into_owned(),
        )
    };
    keys.into_iter().map(stored).unzip()
}
