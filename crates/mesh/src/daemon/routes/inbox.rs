//! What was received, newest first.

use std::sync::Arc;

use consign_store::inbox::{ReceivedFilter, ReceivedMessage};

use super::{LocalRequest, RouteAnswer, json};
use crate::daemon::event_hub::ms_text;
use crate::daemon::shared::DaemonShared;
use crate::daemon::shared_file::PIECE_META;
use crate::ipc::{InboxItem, InboxQuery, IpcItemList, IpcRefusal};
use crate::keys::MeshPublicKey;
use crate::limits::IPC_RESPONSE_BYTES_MAX;
use crate::query::QueryPairs;

pub(super) async fn list(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let query = InboxQuery::parse(&request.query)?;
    let pairs = QueryPairs::parse(&request.query);
    if pairs
        .get("mesh")
        .is_some_and(|mesh| mesh != shared.slug.as_str())
    {
        return Err(IpcRefusal::new(404, "mesh_not_attached"));
    }
    let before = pairs.get("before").map(|cursor| {
        let parsed = cursor
            .split_once('.')
            .and_then(|(ms, id)| Some((ms.parse::<i64>().ok()?, id.to_owned())));
        parsed.ok_or_else(|| IpcRefusal::bad_request("invalid 'before'"))
    });
    let key = query
        .from
        .as_deref()
        .and_then(|from| MeshPublicKey::parse(from).ok());
    let filter = ReceivedFilter {
        since: query.since_ms,
        topic: query.topic,
        sender_pubkey: key.map(|key| key.to_string()),
        sender_name: query.from.filter(|_| key.is_none()),
        // Pieces of files are in the list of files.
        without_meta: Some(PIECE_META.to_owned()),
        before: before.transpose()?,
        // One more tells whether there is a next page.
        limit: query.limit + 1,
    };
    let inbox = Arc::clone(&shared.inbox);
    let listed = tokio::task::spawn_blocking(move || inbox.list(&filter)).await;
    let unavailable = |error: &dyn std::fmt::Display| IpcRefusal::new(503, error.to_string());
    let mut rows = listed
        .map_err(|error| unavailable(&error))?
        .map_err(|error| unavailable(&error))?;
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    let mut has_more = rows.len() > limit;
    rows.truncate(limit);
    let mut bytes = 0;
    let fitting = rows
        .iter()
        .take_while(|row| {
            bytes += row.body.as_ref().map_or(0, String::len)
                + row.meta.as_ref().map_or(0, String::len)
                + ROW_BYTES;
            // Escapes make a text at most six times as long.
            bytes < IPC_RESPONSE_BYTES_MAX / 6
        })
        .count()
        .max(1)
        .min(rows.len());
    if fitting < rows.len() {
        has_more = true;
        rows.truncate(fitting);
    }
    let last = rows.last().filter(|_| has_more);
    let next = last.map(|row| format!("{}.{}", row.received_at, row.id));
    let items = rows.into_iter().map(item).collect();
    json(200, &IpcItemList { items, next })
}

/// Everything of a row but its body and meta.
const ROW_BYTES: usize = 600;

fn item(row: ReceivedMessage) -> InboxItem {
    InboxItem {
        id: row.id,
        client_message_id: row.client_message_id,
        broker_message_id: row.broker_message_id,
        mesh: row.mesh,
        topic: row.topic,
        sender_pubkey: row.sender_pubkey,
        sender_name: row.sender_name,
        body: row.body,
        meta: row.meta,
        received_at: ms_text(row.received_at),
        reply_to_id: row.reply_to_id,
    }
}
