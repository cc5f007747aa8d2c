//! What was received, what the broker knows, and what the daemon reports about itself.

use consign_web::openapi::schema::{
    anything, boolean, integer, list, object, optional, required, text,
};
use consign_web::openapi::{Endpoint, Operation};

use super::operation::{LocalOperation as _, endpoint, operation};
use super::{READING, schemas};
use crate::ipc::IpcRoute;
use crate::limits::{
    FILE_MESSAGE_CHARACTERS_MAX, FILE_PAGE_DEFAULT, FILE_PAGE_MAX, INBOX_PAGE_DEFAULT,
    INBOX_PAGE_MAX,
};

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        endpoint(IpcRoute::Inbox, inbox()),
        endpoint(IpcRoute::Events, events()),
        endpoint(IpcRoute::Peers, peers()),
        endpoint(IpcRoute::TopicList, topics()),
        endpoint(IpcRoute::TopicSubscribe, subscribe(true)),
        endpoint(IpcRoute::TopicUnsubscribe, subscribe(false)),
        endpoint(IpcRoute::FileList, files()),
        endpoint(IpcRoute::FileGet, file()),
        endpoint(IpcRoute::StateGet, state()),
        endpoint(IpcRoute::StateSet, set_state()),
        endpoint(IpcRoute::Health, health()),
        endpoint(IpcRoute::Version, version()),
        endpoint(IpcRoute::Compat, compat()),
        endpoint(IpcRoute::Metrics, metrics()),
    ]
}

fn inbox() -> Operation {
    let page = object(vec![
        required("items", list(schemas::inbox_item())),
        optional(
            "next",
            text().about("There are older ones: pass it as `before`."),
        ),
    ]);
    operation(READING, "listInbox", "List received messages, newest first")
        .query("since", schemas::time())
        .query("topic", text())
        .query("from", text().about("A key or a name."))
        .query("before", text().about("The `next` of the page before."))
        .query("mesh", schemas::own_mesh())
        .query(
            "limit",
            integer()
                .clamped_to(1, INBOX_PAGE_MAX)
                .by_default(INBOX_PAGE_DEFAULT),
        )
        .shows(
            "A page.",
            page.named("InboxPage"),
            r#"{"items":[{"id":"01JD","client_message_id":"disk-7","broker_message_id":null,"mesh":"team","topic":null,"sender_pubkey":"8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394","sender_name":"bob","body":"hello","meta":null,"received_at":"2026-01-01T00:00:00.000Z","reply_to_id":null}]}"#,
        )
        .refuses_with(&[404, 503])
}

fn events() -> Operation {
    operation(READING, "followEvents", "Follow the events")
        .about(
            "Server-sent events with `id`, `event` and `data`. The stream begins with a comment, and a comment every 15 seconds \
             keeps it open. Earlier events are not repeated; `GET /v1/inbox` has the messages.",
        )
        .answers_text("The stream.", "text/event-stream", "")
        .refuses_with(&[507])
}

fn peers() -> Operation {
    let found = object(vec![required("peers", list(schemas::peer()))]);
    operation(READING, "listPeers", "List the members that are connected")
        .query("mesh", schemas::own_mesh())
        .shows("The members.", found.named("Peers"), "")
        .refuses_with(&[404, 503, 504])
}

fn topics() -> Operation {
    let found = object(vec![required("topics", list(schemas::topic()))]);
    operation(READING, "listTopics", "List the topics of the mesh")
        .shows(
            "The topics.",
            found.named("Topics"),
            r#"{"topics":[{"id":"t-1","name":"alerts","description":null,"visibility":"public","memberCount":2,"createdAt":"2026-01-01T00:00:00.000Z","subscribed":true}]}"#,
        )
        .refuses_with(&[404, 503, 504])
}

fn subscribe(wanted: bool) -> Operation {
    let (id, summary) = if wanted {
        ("subscribe", "Receive the posts of a topic")
    } else {
        ("unsubscribe", "Stop receiving the posts of a topic")
    };
    let body = object(vec![
        required("topic", text().about("The name, with or without #.")),
        optional("mesh", schemas::own_mesh()),
    ]);
    let changed = object(vec![
        required("ok", boolean().always(true)),
        required("topic", text()),
        required("subscribed", boolean()),
    ]);
    operation(READING, id, summary)
        .reads(body.named("TopicName"), r#"{"topic":"alerts"}"#)
        .shows("The subscription.", changed.named("Subscription"), "")
        .refuses_with(&[404, 503, 504])
}

fn files() -> Operation {
    let file = object(vec![
        required("id", text()),
        required("name", text()),
        required("bytes", schemas::count()),
        required("sha256", text().hex_digits(64)),
        required(
            "message",
            text().characters(0, FILE_MESSAGE_CHARACTERS_MAX).nullable(),
        ),
        required("from", schemas::pubkey()),
        required("from_name", text()),
        required("complete", boolean().about("Whether all pieces are here.")),
        required("received_at", schemas::time()),
    ]);
    let found = object(vec![
        required("files", list(file.named("FileEntry"))),
        optional(
            "next",
            text().about("There are older ones: pass it as `before`."),
        ),
    ]);
    operation(READING, "listFiles", "List shared files, newest first")
        .query("before", text().about("The `next` of the page before."))
        .query(
            "limit",
            integer()
                .clamped_to(1, FILE_PAGE_MAX)
                .by_default(FILE_PAGE_DEFAULT),
        )
        .shows("A page.", found.named("Files"), "")
        .refuses_with(&[503])
}

fn file() -> Operation {
    let written = object(vec![
        required("id", text()),
        required("out", text()),
        required("bytes", schemas::count()),
    ]);
    operation(READING, "getFile", "Write a shared file to a path")
        .query("id", text().about("Required."))
        .query("out", text().about("Required; absolute, on this machine."))
        .shows("It is written.", written.named("WrittenFile"), "")
        .refuses_with(&[404, 503])
}

fn state() -> Operation {
    operation(READING, "getState", "Read shared values")
        .about(
            "One value with `key`, otherwise all as `entries`. Only with the capability `state`.",
        )
        .query("key", text())
        .shows("The value or the values.", anything(), "")
        .refuses_with(&[404, 503, 504])
}

fn set_state() -> Operation {
    let body = object(vec![
        required("key", text().characters(1, 256)),
        required("value", anything()),
    ]);
    operation(READING, "setState", "Set a shared value")
        .about("Only with the capability `state`.")
        .reads(
            body.named("SharedValue"),
            r#"{"key":"leader","value":{"host":"a"}}"#,
        )
        .shows("The value.", anything(), "")
        .refuses_with(&[404, 503, 504])
}

fn health() -> Operation {
    let state = anything().about("The state of the connection, by mesh.");
    let health = object(vec![
        required("ok", boolean()),
        required("connected", boolean()),
        required(
            "degraded",
            boolean().about("The queue or the disk is full."),
        ),
        required("lag_ms", schemas::count().nullable()),
        required("queue_depth", schemas::count()),
        required("inflight", schemas::count()),
        required("dead", schemas::count()),
        required("mesh", text()),
        required("member_pubkey", schemas::pubkey()),
        required("uptime_s", schemas::count()),
        required("schema_version", schemas::count()),
        required("daemon_version", text()),
        required("broker_version", text().nullable()),
        required("pid", schemas::count()),
        required("brokers", state),
        required(
            "last_error",
            text()
                .nullable()
                .about("Why the broker is not connected; null while it is."),
        ),
    ]);
    operation(READING, "health", "Show the state of the daemon")
        .shows(
            "The daemon runs.",
            health.named("Health"),
            r#"{"ok":true,"connected":true,"degraded":false,"lag_ms":4,"queue_depth":0,"inflight":0,"dead":0,"mesh":"team","member_pubkey":"8139770ea87d175f56a35466c34c7ecccb8d8a91b4ee37a25df60f5b8fc9b394","uptime_s":60,"schema_version":1,"daemon_version":"0.9.0","broker_version":null,"pid":4711,"brokers":{"team":"open"},"last_error":null}"#,
        )
        .refuses_with(&[503])
}

fn version() -> Operation {
    let version = object(vec![
        required("daemon_version", text()),
        required("ipc_api", text()),
        required("ipc_minor", schemas::count()),
        required("ipc_features", list(text())),
        required("schema_version", schemas::count()),
        required("mesh", text()),
        required("broker_features_negotiated", list(text())),
        required("broker_feature_params", anything()),
        required("outbox_max_age_hours", schemas::count().nullable()),
    ]);
    operation(READING, "version", "Show versions and what was negotiated").shows(
        "The versions.",
        version.named("Version"),
        r#"{"daemon_version":"0.9.0","ipc_api":"v1","ipc_minor":0,"ipc_features":["send","topic"],"schema_version":1,"mesh":"team","broker_features_negotiated":[],"broker_feature_params":{},"outbox_max_age_hours":168}"#,
    )
}

fn compat() -> Operation {
    let compat = object(vec![
        required("daemon", text()),
        required("compatible_brokers", list(text())),
        required("required_broker_features", list(text())),
        required("compatible_clis", list(text())),
        required("compatible_sdks", anything()),
    ]);
    operation(READING, "compat", "Show what the daemon works with").shows(
        "Compatible versions.",
        compat.named("Compat"),
        r#"{"daemon":"0.9.0","compatible_brokers":["0.9.x"],"required_broker_features":["client_message_id_dedupe"],"compatible_clis":["0.9.x"],"compatible_sdks":{"go":">=0.9.0,<1.0.0"}}"#,
    )
}

fn metrics() -> Operation {
    operation(READING, "metrics", "Show the metrics")
        .about("404 if `metrics.prometheus_enabled` is off.")
        .answers_text(
            "The text format of Prometheus.",
            "text/plain; version=0.0.4",
            "",
        )
        .refuses_with(&[404])
}
