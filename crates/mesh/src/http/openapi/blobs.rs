//! Files that members share.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{object, required, text};
use consign_web::openapi::{Endpoint, Operation};
use http::Method;

use super::CLIENTS;
use super::operation::{MEMBER_OR_PROGRAM, MeshOperation as _, endpoint, get};
use super::schemas::{count, milliseconds};

pub(super) fn all() -> Vec<Endpoint> {
    let path = "/v1/blobs/{sha256}";
    vec![endpoint(Method::PUT, path, upload()), get(path, download())]
}

fn named(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(CLIENTS, MEMBER_OR_PROGRAM, id, summary)
        .path("sha256", text().hex_digits(64))
        .refuses(&[
            Code::InvalidRequest,
            Code::Forbidden,
            Code::BlobsUnavailable,
        ])
}

fn upload() -> Operation {
    let blob = object(vec![
        required("sha256", text().hex_digits(64)),
        required("bytes", count()),
        required("expires_at", milliseconds()),
    ]);
    let blob = || blob.clone().named("MeshBlob");
    named("meshPutBlob", "Share a file")
        .about(
            "The body is the file, whose SHA-256 the path names. A file is kept as long as messages are, from its last upload on.",
        )
        .creates("The file is stored.", blob())
        .shows("It was stored before, and is kept for longer.", blob())
}

fn download() -> Operation {
    named("meshGetBlob", "Get a file")
        .answers_text("The file.", "application/octet-stream", "")
        .refuses(&[Code::NotFound])
}
