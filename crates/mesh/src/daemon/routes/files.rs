//! Files: sharing one, listing those that are there, writing one.

use std::path::Path;
use std::sync::Arc;

use consign_store::inbox::{Inbox, ReceivedMessage};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::{LocalRequest, RouteAnswer};
use crate::daemon::event_hub::ms_text;
use crate::daemon::private_file::{self, PRIVATE};
use crate::daemon::shared::{DaemonShared, new_ulid, wall_ms};
use crate::daemon::shared_file::{FILE_BYTES_MAX, FilePiece, PIECE_META, PieceMeta, SharedFile};
use crate::destination::EVERYONE;
use crate::ipc::{FileGetQuery, FileListQuery, FileShareRequest, IpcRefusal, IpcSend};
use crate::limits::FILE_MESSAGE_CHARACTERS_MAX;

/// How the id of the message with the first piece of a file ends.
const FIRST_PIECE: &str = ".0";

pub(super) async fn share(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let share = FileShareRequest::parse(&request.body)?;
    let path = Path::new(&share.path);
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.filter(|_| path.is_absolute());
    let name = name.ok_or_else(|| IpcRefusal::bad_request("'path' must be an absolute path"))?;
    let content = read(path).await?;
    let id = new_ulid().to_string();
    let pieces = FilePiece::of_file(&id, name, &content, share.message.as_deref());
    let to = share.to.as_deref().unwrap_or(EVERYONE);
    let mut ids = Vec::with_capacity(pieces.len());
    let count = pieces.len();
    for (piece, text) in pieces {
        let own = FilePiece::message_id(&id, piece.piece);
        let meta = PieceMeta { file_share: piece };
        let body = json!({"to": to, "message": text, "meta": meta, "client_message_id": own});
        let send = IpcSend::parse_send(body.to_string().as_bytes(), None, &shared.slug)?;
        let canonical = send.meta.as_str().to_owned();
        shared.accept(send, None).await?;
        keep(shared, &own, text, canonical).await?;
        ids.push(own);
    }
    let fields = json!({"file": id, "bytes": content.len(), "pieces": count});
    shared.log.info("file_shared", &fields);
    super::json(
        200,
        &json!({
            "fileId": id,
            "name": name,
            "bytes": content.len(),
            "to": to,
            "persistent": share.persistent,
            "client_message_ids": ids,
        }),
    )
}

async fn read(path: &Path) -> Result<Vec<u8>, IpcRefusal> {
    let unreadable = |error: std::io::Error| {
        let status = if error.kind() == std::io::ErrorKind::NotFound {
            404
        } else {
            400
        };
        IpcRefusal::new(status, format!("{}: {error}", path.display()))
    };
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let is_file = file.metadata().await.map_err(unreadable)?.is_file();
    if !is_file {
        return Err(IpcRefusal::bad_request(format!(
            "{} is no file",
            path.display()
        )));
    }
    let mut content = Vec::new();
    let mut limited = file.take(FILE_BYTES_MAX + 1);
    limited
        .read_to_end(&mut content)
        .await
        .map_err(unreadable)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(IpcRefusal::payload_too_large());
    }
    Ok(content)
}

/// The sender has the file as its recipients have it.
async fn keep(
    shared: &Arc<DaemonShared>,
    id: &str,
    text: String,
    meta: String,
) -> Result<(), IpcRefusal> {
    let own = ReceivedMessage {
        id: new_ulid().to_string(),
        client_message_id: id.to_owned(),
        broker_message_id: None,
        mesh: shared.slug.to_string(),
        topic: None,
        sender_pubkey: shared.keys().identity.key.public_key().to_string(),
        sender_name: shared.display_name().unwrap_or_default(),
        body: Some(text),
        meta: Some(meta),
        received_at: wall_ms(),
        reply_to_id: None,
    };
    with_inbox(shared, move |inbox| inbox.insert(&own))
        .await
        .map(|_| ())
}

/// A page of files, newest first.
pub(super) async fn list(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let query = FileListQuery::parse(&request.query)?;
    let listed = with_inbox(shared, move |inbox| page(inbox, &query)).await?;
    let mut answer = json!({"files": listed.files});
    if let Some(next) = listed.next {
        answer["next"] = next.into();
    }
    super::json(200, &answer)
}

struct FilePage {
    files: Vec<Value>,
    next: Option<String>,
}

fn page(inbox: &Inbox, query: &FileListQuery) -> Result<FilePage, consign_store::Error> {
    let before = query.before.as_ref();
    // One more tells whether there is a next page.
    let mut firsts = inbox.with_meta(PIECE_META, FIRST_PIECE, before, query.limit + 1)?;
    let has_more = firsts.len() > query.limit as usize;
    firsts.truncate(query.limit as usize);
    let last = firsts.last().filter(|_| has_more);
    let next = last.map(|row| format!("{}.{}", row.received_at, row.id));
    let mut files = Vec::with_capacity(firsts.len());
    for row in &firsts {
        let piece = FilePiece::of_meta(row.meta.as_deref()).filter(|piece| {
            piece.piece == 0 && FilePiece::message_id(&piece.id, 0) == row.client_message_id
        });
        if let Some(piece) = piece {
            files.push(entry(inbox, row, &piece)?);
        }
    }
    Ok(FilePage { files, next })
}

fn entry(
    inbox: &Inbox,
    row: &ReceivedMessage,
    piece: &FilePiece,
) -> Result<Value, consign_store::Error> {
    let present = inbox.with_id(&piece.id, &row.sender_pubkey, piece.pieces)?;
    let present = present
        .iter()
        .filter_map(|other| FilePiece::of_meta(other.meta.as_deref()))
        .filter(|other| other.id == piece.id)
        .count();
    let message = piece.message.as_deref();
    // The sender is not ours, so its text has a bound.
    let message: Option<String> =
        message.map(|text| text.chars().take(FILE_MESSAGE_CHARACTERS_MAX).collect());
    Ok(json!({
        "id": piece.id,
        "name": piece.name,
        "bytes": piece.bytes,
        "sha256": piece.sha256,
        "message": message,
        "from": row.sender_pubkey,
        "from_name": row.sender_name,
        "complete": u32::try_from(present) == Ok(piece.pieces),
        "received_at": ms_text(row.received_at),
    }))
}

pub(super) async fn get(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let query = FileGetQuery::parse(&request.query)?;
    if !Path::new(&query.out).is_absolute() {
        return Err(IpcRefusal::bad_request("'out' must be an absolute path"));
    }
    let id = query.id.clone();
    let found = with_inbox(shared, move |inbox| SharedFile::read(inbox, &id)).await?;
    let file = found.ok_or_else(|| IpcRefusal::new(404, "file_not_found"))?;
    let (out, bytes) = (query.out.clone(), file.content.len());
    let written = tokio::task::spawn_blocking(move || {
        private_file::replace(Path::new(&out), &file.content, PRIVATE)
    });
    match written.await {
        Ok(Ok(())) => super::json(
            200,
            &json!({"id": query.id, "out": query.out, "bytes": bytes}),
        ),
        Ok(Err(error)) => Err(IpcRefusal::bad_request(format!("{}: {error}", query.out))),
        Err(error) => Err(IpcRefusal::new(500, format!("internal: {error}"))),
    }
}

async fn with_inbox<T: Send + 'static>(
    shared: &Arc<DaemonShared>,
    call: impl FnOnce(&Inbox) -> Result<T, consign_store::Error> + Send + 'static,
) -> Result<T, IpcRefusal> {
    let inbox = Arc::clone(&shared.inbox);
    let called = tokio::task::spawn_blocking(move || call(&inbox)).await;
    let unavailable = |error: &dyn std::fmt::Display| {
        IpcRefusal::new(503, format!("storage_unavailable: {error}"))
    };
    called
        .map_err(|error| unavailable(&error))?
        .map_err(|error| unavailable(&error))
}
