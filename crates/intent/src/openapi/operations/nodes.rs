//! The operator's routes for nodes.

use consign_kernel::error::Code;
use http::StatusCode;

use super::super::access;
use super::super::schemas;
use consign_web::openapi::Operation;
use consign_web::openapi::schema::{Schema, list, text};

fn id() -> Schema {
    text()
        .about("The id of the node.")
        .rule("pattern", "^[0-9]{1,10}$")
}

fn drain_operation(name: &'static str, summary: &'static str) -> Operation {
    Operation::new(access::OPERATE, access::OPERATOR, name, summary)
        .path("id", id())
        .refuses(&[Code::Forbidden, Code::NotFound])
}

pub(crate) fn nodes() -> Operation {
    Operation::new(access::OPERATE, access::OPERATOR, "listNodes", "List the servers of this ledger")
        .about("The nodes with a heartbeat in the last 30 seconds. A ledger in a file has one node.")
        .answers(
            StatusCode::OK,
            "The servers, in the order of their start.",
            list(schemas::node()),
            r#"[{"id":3735928559,"name":"web-1:4711","address":"http://10.0.0.7:7070","version":"0.1.0","started_at":1794736915.312204,"seen_at":1794736933.105512,"state":"serving","leases":3,"here":true}]"#,
        )
}

pub(crate) fn drain_node() -> Operation {
    drain_operation("drainNode", "Drain a server")
        .about("Within two seconds the server refuses claims. All other requests are served, so that workers can finish. It is drained when none of its leases is left. The request can be sent to any server of the ledger.")
        .answers(
            StatusCode::OK,
            "The node and its current state.",
            schemas::node(),
            r#"{"id":3735928559,"name":"web-1:4711","address":"http://10.0.0.7:7070","version":"0.1.0","started_at":1794736915.312204,"seen_at":1794736933.105512,"state":"draining","leases":3,"here":true}"#,
        )
}

pub(crate) fn resume_node() -> Operation {
    drain_operation("resumeNode", "End the drain of a server")
        .about("The server grants leases again within two seconds.")
        .answers(
            StatusCode::OK,
            "The node and its current state.",
            schemas::node(),
            r#"{"id":3735928559,"name":"web-1:4711","address":"http://10.0.0.7:7070","version":"0.1.0","started_at":1794736915.312204,"seen_at":1794736933.105512,"state":"serving","leases":0,"here":true}"#,
        )
}
