//! `PUT` and `GET /v1/blobs/SHA256`: files that members share.
//!
//! A program authenticates with an API key, a member with a signature over the request. Files are received and sent in
//! chunks, so that a large one does not need memory.

use std::io::Read as _;
use std::sync::Arc;
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
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::face::MeshFace;
use super::operators::rejection;
use crate::broker::{BlobName, BlobSettings, BlobUpload, Broker, KeyHolder};
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
    let _permit = face.blob_permit()?;
    let broker = face.broker.clone();
    let (begun, mesh_id) = (name.clone(), holder.mesh.id.clone());
    let (bytes_max, folder) = (settings.bytes_max, settings);
    let begin = move || broker.begin_blob(&folder, &mesh_id, &begun);
    let upload = tokio::task::spawn_blocking(begin).await;
    let upload = upload.map_err(failed)?.map_err(failed)?;
    let received = receive(upload, name.clone(), body, bytes_max).await?;
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

/// Writes the body to the file, and verifies it.
async fn receive(
    mut upload: BlobUpload,
    name: BlobName,
    mut body: Body,
    bytes_max: u64,
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
    loop {
        let frame = tokio::time::timeout(CHUNK_WAIT, body.frame()).await;
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
        if total > bytes_max {
            let text = format!("A file may have at most {bytes_max} bytes.");
            return Err(Reject::new(Code::PayloadTooLarge, text));
        }
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
    let permit = face.blob_permit()?;
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
        // A reader that takes nothing for a while, or is gone, ends the transfer.
        while let Ok(length @ 1..) = file.read(&mut buffer) {
            let chunk = Bytes::copy_from_slice(&buffer[..length]);
            let sent = chunks.send(chunk);
            let sent = runtime.block_on(async { tokio::time::timeout(CHUNK_WAIT, sent).await });
            if !matches!(sent, Ok(Ok(()))) {
                break;
            }
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

    fn blob_permit(&self) -> Result<OwnedSemaphorePermit, Reject> {
        let permit = Arc::clone(&self.blob_transfers).try_acquire_owned();
        permit.map_err(|_| {
            let text = "Too many files are transferred at once; try again shortly.";
            Reject::new(Code::BlobsUnavailable, text)
        })
    }
}

fn failed(error: impl std::fmt::Display) -> Reject {
    tracing::error!(%error, "a file was not transferred");
    Reject::new(Code::Internal, "Internal error.")
}
