//! `PUT` and `GET /v1/blobs/SHA256`: files that members share.
//!
//! A program authenticates with an API key, a member with a signature over the request. Files are received and sent in
//! chunks, so that a large one does not need memory.

use std::io::Read as _;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::put;
use consign_kernel::error::Code;
use consign_web::channel_body::ChannelBody;
use consign_web::json_out::json_response;
use consign_web::reject::Reject;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::blob_transfers::{BlobPermit, TransfersBusy};
use super::face::MeshFace;
use super::operators::rejection;
use crate::broker::{BlobName, BlobSettings, BlobUpload, Broker, KeyHolder};
use crate::limits::BLOB_BYTES_PER_SECOND_MIN;
use crate::role::ApiCapability;

/// A client must send or take something within this time.
const CHUNK_WAIT: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 65_536;
/// Chunks between the connection and the disk.
const CHUNKS_AHEAD: usize = 4;

#[derive(Serialize)]
struct BlobBody<'a> {
    sha256: &'a str,
    bytes: u64,
    /// Milliseconds since 1970.
    expires_at: i64,
}

/// Why an upload ended without a file.
enum UploadEnd {
    Wrong,
    Failed(std::io::Error),
}

pub(super) fn routes() -> Router<MeshFace> {
    Router::new().route("/v1/blobs/{sha256}", put(upload).get(download))
}

async fn upload(
    State(face): State<MeshFace>,
    Path(sha256): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, body) = request.into_parts();
    let (holder, name, settings) = face
        .blob_request(&parts, &sha256, ApiCapability::Send)
        .await?;
    let _permit = face.blob_permit(&holder.member.id)?;
    let broker = face.broker.clone();
    let room = broker.blob_room(&settings, &holder.mesh.id, &name);
    let room = room.await.map_err(rejection)?;
    let (begun, mesh_id) = (name.clone(), holder.mesh.id.clone());
    let bytes_max = settings.bytes_max;
    let begin = move || {
        let upload = broker.begin_blob(&settings, &mesh_id, &begun)?;
        Ok::<_, std::io::Error>((upload, settings.free_bytes()?))
    };
    let begun = tokio::task::spawn_blocking(begin).await;
    let (upload, free) = begun.map_err(failed)?.map_err(failed)?;
    let limits = UploadLimits {
        file: bytes_max,
        mesh: room,
        disk: free,
    };
    let announced = parts.headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    limits.check(announced.unwrap_or(0))?;
    let received = receive(upload, name.clone(), body, &limits).await?;
    let (upload, bytes) = received;
    let noted = face
        .broker
        .note_blob(&holder.mesh, &name, &holder.member.id, bytes);
    let (blob, is_new) = noted.await.map_err(rejection)?;
    let finished = tokio::task::spawn_blocking(move || upload.finish()).await;
    finished.map_err(failed)?.map_err(failed)?;
    let body = BlobBody {
        sha256: name.as_str(),
        bytes: blob.bytes,
        expires_at: blob.expires_at,
    };
    let text = serde_json::to_string(&body).expect("texts and numbers are JSON");
    let mut response = json_response(text);
    if is_new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// How long an upload may become.
struct UploadLimits {
    /// For every file.
    file: u64,
    /// What the mesh may still store.
    mesh: u64,
    /// What the disk has to spare.
    disk: u64,
}

impl UploadLimits {
    fn check(&self, bytes: u64) -> Result<(), Reject> {
        if bytes > self.file {
            let text = format!("A file may have at most {} bytes.", self.file);
            return Err(Reject::new(Code::PayloadTooLarge, text));
        }
        if bytes > self.mesh {
            let text = format!(
                "The files of this mesh leave room for {} bytes; see MESH_BLOB_MESH_BYTES_MAX.",
                self.mesh
            );
            return Err(Reject::new(Code::PayloadTooLarge, text));
        }
        if bytes >= self.disk {
            let text = "The disk of this server has no room for the file.";
            return Err(Reject::new(Code::BlobsUnavailable, text));
        }
        Ok(())
    }
}

/// The time of a transfer: it must have moved so many bytes by then.
struct TransferPace(Instant);

impl TransferPace {
    fn begin() -> Self {
        Self(Instant::now())
    }

    /// When the transfer ends unless it moves something more.
    fn deadline(&self, moved: u64) -> Instant {
        let owed = Duration::from_secs(moved / BLOB_BYTES_PER_SECOND_MIN);
        let slow = self.0 + CHUNK_WAIT + owed;
        slow.min(Instant::now() + CHUNK_WAIT)
    }
}

/// Writes the body to the file, and verifies it.
async fn receive(
    mut upload: BlobUpload,
    name: BlobName,
    mut body: Body,
    limits: &UploadLimits,
) -> Result<(BlobUpload, u64), Reject> {
    let (chunks, mut written) = mpsc::channel::<Bytes>(CHUNKS_AHEAD);
    let writer = tokio::task::spawn_blocking(move || {
        while let Some(chunk) = written.blocking_recv() {
            upload.write(&chunk).map_err(UploadEnd::Failed)?;
        }
        match upload.verify(&name).map_err(UploadEnd::Failed)? {
            Some(bytes) => Ok((upload, bytes)),
            None => Err(UploadEnd::Wrong),
        }
    });
    let mut total: u64 = 0;
    let pace = TransferPace::begin();
    loop {
        let frame = tokio::time::timeout_at(pace.deadline(total), body.frame()).await;
        let frame = frame.map_err(|_| {
            let text = "The file did not arrive in time.";
            Reject::new(Code::RequestTimeout, text)
        })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| {
            let text = "The file ended early or is malformed.";
            Reject::new(Code::InvalidPayload, text)
        })?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        total += chunk.len() as u64;
        limits.check(total)?;
        if chunks.send(chunk).await.is_err() {
            // The writer has failed and says why.
            break;
        }
    }
    drop(chunks);
    match writer.await.map_err(failed)? {
        Ok(done) => Ok(done),
        Err(UploadEnd::Wrong) => {
            let text = "The bytes have another SHA-256 than the path says.";
            Err(Reject::new(Code::InvalidPayload, text))
        }
        Err(UploadEnd::Failed(error)) => Err(failed(error)),
    }
}

async fn download(
    State(face): State<MeshFace>,
    Path(sha256): Path<String>,
    request: Request,
) -> Result<Response, Reject> {
    let (parts, _) = request.into_parts();
    let (holder, name, settings) = face
        .blob_request(&parts, &sha256, ApiCapability::Read)
        .await?;
    let permit = face.blob_permit(&holder.member.id)?;
    let mesh_id = holder.mesh.id;
    let blob = face.broker.blob(&mesh_id, &name).await.map_err(rejection)?;
    let missing = || Reject::new(Code::NotFound, "This mesh has no such file.");
    let blob = blob.ok_or_else(missing)?;
    let open = move || Broker::open_blob(&settings, &mesh_id, &name);
    let file = tokio::task::spawn_blocking(open).await;
    let mut file = file.map_err(failed)?.map_err(failed)?.ok_or_else(missing)?;
    let (chunks, body) = ChannelBody::new(CHUNKS_AHEAD);
    let runtime = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut buffer = vec![0; CHUNK_BYTES];
        let (pace, mut total) = (TransferPace::begin(), 0);
        // A reader that takes nothing for a while, or is gone, ends the transfer.
        while let Ok(length @ 1..) = file.read(&mut buffer) {
            let chunk = Bytes::copy_from_slice(&buffer[..length]);
            let sent = chunks.send(chunk);
            let until = pace.deadline(total);
            let sent = runtime.block_on(async { tokio::time::timeout_at(until, sent).await });
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
            total += length as u64;
        }
    });
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(blob.bytes));
    Ok(response)
}

impl MeshFace {
    /// The sender of a request for a blob, the name, and the folder. The sender is known before anything else is answered.
    async fn blob_request(
        &self,
        parts: &Parts,
        sha256: &str,
        capability: ApiCapability,
    ) -> Result<(KeyHolder, BlobName, BlobSettings), Reject> {
        let holder = if parts
            .headers
            .contains_key(super::member_signature::SIGNATURE)
        {
            self.signing_member(parts).await?
        } else {
            self.key_holder(parts).await?
        };
        if !holder.scope.has(capability) {
            let text = "This key has not the capability for files.";
            return Err(Reject::new(Code::Forbidden, text));
        }
        let invalid = || {
            let text = "A file is named by 64 hex digits in lower case.";
            Reject::new(Code::InvalidRequest, text)
        };
        let name = BlobName::parse(sha256).ok_or_else(invalid)?;
        let settings = self.broker.blob_settings().cloned().ok_or_else(|| {
            let text = "This server has no folder for files; see MESH_BLOB_DIR.";
            Reject::new(Code::BlobsUnavailable, text)
        })?;
        Ok((holder, name, settings))
    }

    fn blob_permit(&self, member_id: &str) -> Result<BlobPermit, Reject> {
        self.blob_transfers.begin(member_id).map_err(|busy| {
            let text = match busy {
                TransfersBusy::All => "Too many files are transferred at once; try again shortly.",
                TransfersBusy::Member => {
                    "This member transfers too many files at once; try again after one of them."
                }
            };
            Reject::new(Code::BlobsUnavailable, text)
        })
    }
}

fn failed(error: impl std::fmt::Display) -> Reject {
    tracing::error!(%error, "a file was not transferred");
    Reject::new(Code::Internal, "Internal error.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_transfer_that_moves_a_byte_now_and_then_ends() {
        let (pace, second) = (TransferPace::begin(), Duration::from_secs(1));
        assert_eq!(pace.deadline(0), Instant::now() + CHUNK_WAIT);
        tokio::time::advance(29 * second).await;
        assert_eq!(pace.deadline(1), Instant::now() + second);
        tokio::time::advance(second).await;
        assert!(pace.deadline(2) <= Instant::now());
        // One that keeps the pace has the time of a chunk again and again.
        tokio::time::advance(70 * second).await;
        let enough = 100 * BLOB_BYTES_PER_SECOND_MIN;
        assert_eq!(pace.deadline(enough), Instant::now() + CHUNK_WAIT);
    }
}
