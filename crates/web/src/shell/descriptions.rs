//! The descriptions of the routes of the shell, for the document of the root mount.

use consign_kernel::error::Code;
use http::{Method, StatusCode};

use super::PATHS;
use crate::openapi::schema::{
    Schema, anything, boolean, exactly, list, number, object, required, text,
};
use crate::openapi::{Access, Endpoint, Operation, Tag, VERSION};

const PLAIN: &str = "text/plain; charset=utf-8";

/// The section of the routes of the shell.
pub const SERVER_TAG: Tag = Tag {
    title: "Server",
    about: "Health, metrics, keys and documentation of the server.",
};

/// What the descriptions contain of the root mount.
#[derive(Debug, Clone, Copy)]
pub struct RootTexts {
    /// The version in `/health`.
    pub version: &'static str,
    /// The access of routes without credentials.
    pub anyone: Access,
    pub metrics: Access,
    /// The access of the documents.
    pub reader: Access,
    pub greeting_example: &'static str,
    pub health_example: &'static str,
    pub metrics_example: &'static str,
}

/// All routes of the shell with their descriptions.
pub fn endpoints(texts: &RootTexts) -> Vec<Endpoint> {
    let operations: [Operation; PATHS.len()] = [
        root(texts),
        health(texts),
        public_keys(texts),
        metrics(texts),
        openapi(texts),
        docs(texts),
    ];
    let described = PATHS.into_iter().zip(operations);
    let endpoint = |(path, operation)| Endpoint {
        method: Method::GET,
        path,
        operation,
    };
    described.map(endpoint).collect()
}

fn root(texts: &RootTexts) -> Operation {
    Operation::new(SERVER_TAG, texts.anyone, "root", "Show name and version").answers_text(
        "Name and version of the protocol's server.",
        PLAIN,
        texts.greeting_example,
    )
}

fn health(texts: &RootTexts) -> Operation {
    let answer = object(vec![
        required("ok", boolean().always(true)),
        required(
            "ts",
            number()
                .about("The server's clock.")
                .limit("Unix time in seconds"),
        ),
        required(
            "version",
            text()
                .about("The protocol's server version, which existing tools compare.")
                .always(texts.version),
        ),
        required(
            "consign_version",
            text().about("The version of this server."),
        ),
        required(
            "draining",
            boolean().about("The server grants no leases; send workers to another server."),
        ),
    ]);
    Operation::new(
        SERVER_TAG,
        texts.anyone,
        "health",
        "Check the health of the server",
    )
    .about("The ledger is checked at most once a second. Further fields belong to the other protocols of the server.")
    .answers(
        StatusCode::OK,
        "The server is healthy.",
        answer,
        texts.health_example,
    )
    .refuses(&[Code::DatabaseBusy])
}

fn public_keys(texts: &RootTexts) -> Operation {
    Operation::new(SERVER_TAG, texts.anyone, "publicKeys", "Get the public keys of receipts")
        .about("Fetch it once over a trusted connection, and store it.")
        .answers(
            StatusCode::OK,
            "A JWK set.",
            jwk_set(),
            r#"{"keys":[{"alg":"EdDSA","crv":"Ed25519","kid":"816b3ab5d6f3ac0e","kty":"OKP","use":"sig","x":"BgYViLoCkmbLlSnHbF_bw5jRd9IwPL9cuZYIif9x2E8"}]}"#,
        )
}

fn jwk_set() -> Schema {
    let key = exactly(vec![
        required("kty", text().always("OKP")),
        required("crv", text().always("Ed25519")),
        required("alg", text().always("EdDSA")),
        required("use", text().always("sig")),
        required("kid", text()),
        required("x", text()),
    ]);
    exactly(vec![required("keys", list(key))]).named("PublicKeys")
}

fn metrics(texts: &RootTexts) -> Operation {
    Operation::new(SERVER_TAG, texts.metrics, "metrics", "Read the metrics").answers_text(
        "The metrics in the text format of Prometheus.",
        PLAIN,
        texts.metrics_example,
    )
}

fn openapi(texts: &RootTexts) -> Operation {
    let document = object(vec![
        required("openapi", text().always(VERSION)),
        required("info", anything()),
        required("paths", anything()),
    ]);
    Operation::new(
        SERVER_TAG,
        texts.reader,
        "openapi",
        "Get this documentation as OpenAPI",
    )
    .answers(StatusCode::OK, "An OpenAPI 3.1 document.", document, "")
}

fn docs(texts: &RootTexts) -> Operation {
    Operation::new(SERVER_TAG, texts.reader, "docs", "Show this documentation")
        .about("Open it in a browser; the user is admin. It loads nothing from other servers.")
        .answers_text("An HTML page.", "text/html; charset=utf-8", "")
        .with_headers(&["Content-Security-Policy"])
}
