//! What operators see of a mesh: topics, connections, messages and conflicts.

use consign_web::openapi::schema::{Schema, boolean, integer, list, object, required, text};
use consign_web::openapi::{Endpoint, Operation};

use super::operation::{MeshOperation as _, get, post};
use super::operators::operation;
use super::schemas::{count, milliseconds, pubkey};
use crate::limits::{MESSAGE_PAGE_DEFAULT, MESSAGE_PAGE_MAX};

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        get("/v1/meshes/{slug}/topics", topics()),
        get("/v1/meshes/{slug}/peers", peers()),
        get("/v1/meshes/{slug}/messages", messages()),
        get("/v1/meshes/{slug}/dedupe", dedupe()),
        get("/v1/meshes/{slug}/dead", dead()),
        post("/v1/meshes/{slug}/dead/{id}/requeue", requeue()),
    ]
}

fn rows(member: &'static str, row: Schema, name: &'static str) -> Schema {
    object(vec![required(member, list(row))]).named(name)
}

/// A topic as operators see it.
pub(super) fn topic() -> Schema {
    let queue = object(vec![
        required("queue", text()),
        required(
            "by_automation",
            boolean().about("It ends with the configuration of the automation."),
        ),
    ]);
    let topic = object(vec![
        required("topic_id", text()),
        required("name", text()),
        required("description", text().nullable()),
        required("visibility", text()),
        required("member_count", count()),
        required("queues", list(queue.named("MeshTopicQueue"))),
        required("created_at", milliseconds()),
    ]);
    topic.named("MeshTopic")
}

fn topics() -> Operation {
    operation("meshTopics", "List the topics of a mesh").shows(
        "The topics, with the queues that they fill.",
        rows("topics", topic(), "MeshTopicList"),
    )
}

fn peers() -> Operation {
    let peer = object(vec![
        required("presence_id", text()),
        required("member_id", text()),
        required("pubkey", pubkey()),
        required("session_pubkey", pubkey().nullable()),
        required("name", text()),
        required("role", text()),
        required("status", text()),
        required("groups", list(text())),
        required("hostname", text().nullable()),
        required("connected_at", milliseconds()),
    ]);
    operation("meshPeers", "List the connections of a mesh").shows(
        "The connections to all nodes.",
        rows("peers", peer.named("MeshPeer"), "MeshPeerList"),
    )
}

fn messages() -> Operation {
    let message = object(vec![
        required("message_id", text()),
        required("client_message_id", text().nullable()),
        required("destination_kind", text()),
        required("destination_ref", text()),
        required("sender_member_id", text().nullable()),
        required("state", text().one_of(["accepted", "delivered"])),
        required("created_at", milliseconds()),
        required("expires_at", milliseconds()),
    ]);
    operation("meshMessages", "List the latest messages of a mesh")
        .about("Without bodies.")
        .query(
            "limit",
            integer()
                .by_default(MESSAGE_PAGE_DEFAULT)
                .clamped_to(1, MESSAGE_PAGE_MAX),
        )
        .shows(
            "The messages, newest first.",
            rows(
                "messages",
                message.named("MeshMessageRow"),
                "MeshMessageList",
            ),
        )
}

fn dead() -> Operation {
    let item = object(vec![
        required("item_id", text()),
        required("queue", text()),
        required("topic", text().nullable()),
        required("client_message_id", text().nullable()),
        required("sender_name", text().nullable()),
        required("attempts", count()),
        required("reason", text()),
        required("created_at", milliseconds()),
        required("dead_at", milliseconds().nullable()),
    ]);
    operation("meshDead", "List the dead items of all queues of a mesh")
        .about("Without bodies.")
        .query(
            "limit",
            integer()
                .by_default(MESSAGE_PAGE_DEFAULT)
                .clamped_to(1, MESSAGE_PAGE_MAX),
        )
        .shows(
            "The items, newest first.",
            rows("items", item.named("MeshDeadItem"), "MeshDeadItemList"),
        )
}

fn requeue() -> Operation {
    let body = object(vec![
        required("item_id", text()),
        required("requeued", boolean().always(true)),
    ]);
    operation("meshRequeue", "Offer a dead item to workers again")
        .path("id", text())
        .shows("The item waits in its queue.", body.named("MeshRequeued"))
}

fn dedupe() -> Operation {
    let conflict = object(vec![
        required("member_id", text()),
        required("mismatches", count()),
    ]);
    let body = object(vec![
        required(
            "waiting",
            count().about("Messages that wait for recipients."),
        ),
        required("conflicts", list(conflict.named("MeshConflicts"))),
    ]);
    operation("meshDedupe", "Count the conflicts of ids in a mesh").shows(
        "Conflicts since the start of this node.",
        body.named("MeshDedupe"),
    )
}
