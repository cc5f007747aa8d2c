//! The descriptions of the routes of the shell, for the document of the root mount.

use consign_kernel::error::Code;
use http::{Method, StatusCode};

use super::PATHS;
use crate::openapi::schema::{
    Schema, anything, boolean, exactly, integer, list, number, object, optional, required, text,
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
    /// The access of the operator's routes.
    pub operator: Access,
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
        status(texts),
        operator_events(texts),
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

fn status(texts: &RootTexts) -> Operation {
    let answer = object(vec![
        required("healthy", boolean().about("No problem is an error.")),
        required("at", number().limit("Unix time in seconds")),
        required("version", text().about("The version of this server.")),
        required("protocol_version", text().always(texts.version)),
        required("draining", boolean()),
        required(
            "ledger",
            anything().about("Its health, and counters since the start of this server."),
        ),
        required("clock", anything()),
        required("waiting_lanes", integer()),
        optional(
            "faces",
            list(anything()).about(
                "For each protocol: rows by state, the age of the oldest one that waits, counters of this server.",
            ),
        ),
        optional(
            "goals",
            list(anything())
                .about("The counters of the busiest pairs of namespace and goal, at most 50."),
        ),
        optional("nodes", list(anything())),
        optional(
            "last_fact",
            integer().about("The id of the last event, after which a stream may begin."),
        ),
        optional(
            "last_cleanup_at",
            number().nullable().limit("Unix time in seconds"),
        ),
        optional(
            "parts",
            anything().about("Figures of agent transactions, of the automation and of the process."),
        ),
        required(
            "problems",
            list(object(vec![
                required("level", text().one_of(["error", "warning"])),
                required("id", text()),
                required("what", text()),
                required("why", text()),
                required("next", text().about("What to do, as a command if there is one.")),
            ])),
        ),
    ]);
    Operation::new(
        SERVER_TAG,
        texts.operator,
        "serverStatus",
        "Show the state of the whole server",
    )
    .about("The same figures as consign status and consign top. If the ledger cannot be read, the status is 503 and the optional fields are absent.")
    .answers(StatusCode::OK, "The state.", answer, "")
    .refuses(&[Code::DatabaseBusy])
}

fn operator_events(texts: &RootTexts) -> Operation {
    let after = || {
        text()
            .about("Continue after this event; 0 begins with the oldest stored event.")
            .rule("pattern", "^[0-9]{1,19}$")
    };
    Operation::new(
        SERVER_TAG,
        texts.operator,
        "followAllEvents",
        "Follow the rows of all owners and protocols as they change",
    )
    .about("Server-sent events. Reconnect with the last id to continue without gaps. A comment is sent every 15 seconds to keep the connection alive. States have their canonical names.")
    .query("face", text().one_of(["intent", "automation", "transaction", "mesh", "beam"]))
    .query("namespace", text().about("Only rows of this namespace."))
    .query("goal", text().about("Only rows with this goal."))
    .query("after", after())
    .header("Last-Event-ID", after().about("Sent by browsers when they reconnect; takes precedence over after."))
    .answers_text(
        "An endless stream. The data of each event is a fact with its intent, namespace, goal, owner and protocol.",
        "text/event-stream",
        "id: 3\nevent: completed\ndata: {\"seq\":3,\"face\":\"intent\",\"verb\":\"completed\",\"from\":\"dispatched\",\"to\":\"acked\", …}",
    )
    .refuses(&[Code::InvalidCursor, Code::CursorUnknown, Code::LimitExceeded])
    .example_query("after=0")
}
