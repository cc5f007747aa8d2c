//! Health, metrics, keys and documentation.

use consign_kernel::error::Code;
use http::StatusCode;

use super::super::super::API_VERSION;
use super::super::access;
use super::super::schemas;
use consign_web::openapi::Operation;
use consign_web::openapi::VERSION;
use consign_web::openapi::schema::{Schema, anything, boolean, number, object, required, text};

const PLAIN: &str = "text/plain; charset=utf-8";

pub(crate) fn root() -> Operation {
    Operation::new(
        access::SERVER,
        access::ANYONE,
        "root",
        "Show name and version",
    )
    .answers_text(
        "Name and version of the protocol's server.",
        PLAIN,
        "Intent Bus V7.61",
    )
}

pub(crate) fn health() -> Operation {
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
                .always(API_VERSION),
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
    Operation::new(access::SERVER, access::ANYONE, "health", "Check the health of the server")
        .about("The ledger is checked at most once a second. Further fields belong to the other protocols of the server.")
        .answers(
            StatusCode::OK,
            "The server is healthy.",
            answer,
            r#"{"ok":true,"ts":1794736915.312204,"version":"7.61","consign_version":"0.1.0","draining":false}"#,
        )
        .refuses(&[Code::DatabaseBusy])
}

pub(crate) fn jwks() -> Operation {
    Operation::new(access::SERVER, access::ANYONE, "publicKeys", "Get the public keys of receipts")
        .about("Fetch it once over a trusted connection, and store it.")
        .answers(
            StatusCode::OK,
            "A JWK set.",
            schemas::jwks(),
            r#"{"keys":[{"alg":"EdDSA","crv":"Ed25519","kid":"816b3ab5d6f3ac0e","kty":"OKP","use":"sig","x":"BgYViLoCkmbLlSnHbF_bw5jRd9IwPL9cuZYIif9x2E8"}]}"#,
        )
}

pub(crate) fn metrics() -> Operation {
    Operation::new(
        access::SERVER,
        access::METRICS,
        "metrics",
        "Read the metrics",
    )
    .answers_text(
        "The metrics in the text format of Prometheus.",
        PLAIN,
        "intent_bus_intents_total{status=\"open\",namespace=\"default\"} 2",
    )
}

pub(crate) fn openapi() -> Operation {
    Operation::new(
        access::SERVER,
        access::READER,
        "openapi",
        "Get this documentation as OpenAPI",
    )
    .answers(
        StatusCode::OK,
        "An OpenAPI 3.1 document.",
        description(),
        "",
    )
}

fn description() -> Schema {
    object(vec![
        required("openapi", text().always(VERSION)),
        required("info", anything()),
        required("paths", anything()),
    ])
}

pub(crate) fn docs() -> Operation {
    Operation::new(
        access::SERVER,
        access::READER,
        "docs",
        "Show this documentation",
    )
    .about("Open it in a browser; the user is admin. It loads nothing from other servers.")
    .answers_text("An HTML page.", "text/html; charset=utf-8", "")
    .with_headers(&["Content-Security-Policy"])
}
