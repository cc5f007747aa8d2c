//! Meshes, invites, members and API keys.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{Schema, list, object, optional, required, text};
use consign_web::openapi::{Endpoint, Operation};

use super::OPERATORS;
use super::operation::{MeshOperation as _, OPERATOR, get, post};
use super::schemas;
use crate::limits::{
    API_KEY_LABEL_CHARS_MAX, API_KEY_TOPICS_MAX, DEDUPE_DAYS_DEFAULT, DEDUPE_DAYS_MIN,
    INVITE_SECONDS_DEFAULT, INVITE_SECONDS_MAX, INVITE_USES_DEFAULT, INVITE_USES_MAX,
    MESSAGE_DAYS_DEFAULT, QUEUE_NAME_CHARS_MAX, RETENTION_DAYS_MAX,
};

pub(super) fn all() -> Vec<Endpoint> {
    vec![
        post("/v1/meshes", create()),
        get(
            "/v1/meshes",
            operation("meshList", "List the meshes").shows(
                "The meshes, oldest first.",
                object(vec![required("meshes", list(schemas::mesh()))]).named("MeshSettingsList"),
            ),
        ),
        get(
            "/v1/meshes/{slug}",
            operation("meshShow", "Get a mesh and its settings")
                .shows("The mesh.", schemas::mesh()),
        ),
        post("/v1/meshes/{slug}/invites", invite()),
        get(
            "/v1/meshes/{slug}/invites",
            operation("meshInvites", "List the invites of a mesh").shows(
                "The invites, without their tokens.",
                object(vec![required("invites", list(schemas::invite()))]).named("MeshInviteList"),
            ),
        ),
        post(
            "/v1/meshes/{slug}/invites/{id}/revoke",
            operation("meshRevokeInvite", "End an invite")
                .path("id", text())
                .about("Members that joined with it stay.")
                .shows("The invite.", schemas::invite()),
        ),
        get(
            "/v1/meshes/{slug}/members",
            operation("meshMembers", "List the members of a mesh")
                .query("all", text().one_of(["true", "false"]))
                .about_parameter("With revoked members.")
                .shows(
                    "The members, those who joined first first.",
                    object(vec![required("members", list(schemas::member()))])
                        .named("MeshMemberList"),
                ),
        ),
        post("/v1/meshes/{slug}/members/{pubkey}/rename", rename()),
        post(
            "/v1/meshes/{slug}/members/{pubkey}/revoke",
            of_member("meshRevokeMember", "End a membership for good")
                .about("Closes the connections of the member. Its id never lives again.")
                .shows("The member.", schemas::member()),
        ),
        post(
            "/v1/meshes/{slug}/subscribe",
            subscription("meshSubscribe", "Let a topic fill a queue")
                .about("Each later post to the topic is also an item of the queue. A queue that the topic fills already stays as it is."),
        ),
        post(
            "/v1/meshes/{slug}/unsubscribe",
            subscription("meshUnsubscribe", "End a subscription of a queue")
                .about("Items that are in the queue stay there."),
        ),
        post("/v1/meshes/{slug}/members/{pubkey}/grants", grant()),
        post("/v1/meshes/{slug}/keys", create_key()),
        get(
            "/v1/meshes/{slug}/keys",
            operation("meshKeys", "List the API keys of a mesh").shows(
                "The keys, without their text.",
                object(vec![required("keys", list(schemas::api_key()))]).named("MeshKeyList"),
            ),
        ),
        post(
            "/v1/meshes/{slug}/keys/{id}/revoke",
            operation("meshRevokeKey", "End an API key")
                .path("id", text())
                .shows("The key.", schemas::api_key()),
        ),
    ]
}

pub(super) fn operation(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(OPERATORS, OPERATOR, id, summary)
}

fn of_member(id: &'static str, summary: &'static str) -> Operation {
    operation(id, summary)
        .path("pubkey", schemas::pubkey())
        .refuses(&[Code::InvalidRequest])
}

fn days(min: u32, default: u32) -> Schema {
    schemas::count()
        .within(min, RETENTION_DAYS_MAX)
        .by_default(default)
}

fn create() -> Operation {
    let body = object(vec![
        required("slug", text().characters(1, 64)),
        optional("name", text().characters(1, 64)),
        optional("dedupe_mode", schemas::dedupe_mode()),
        optional("dedupe_days", days(DEDUPE_DAYS_MIN, DEDUPE_DAYS_DEFAULT)),
        optional("message_days", days(1, MESSAGE_DAYS_DEFAULT)),
        optional("clone_policy", schemas::clone_policy()),
    ]);
    operation("meshCreate", "Create a mesh")
        .reads(
            body.named("MeshNew"),
            r#"{"slug":"acme","dedupe_days":365}"#,
        )
        .creates("The mesh.", schemas::mesh())
        .refuses(&[Code::SlugTaken])
}

fn invite() -> Operation {
    let uses = schemas::count().within(1, INVITE_USES_MAX);
    let seconds = schemas::count().within(1, INVITE_SECONDS_MAX);
    let body = object(vec![
        optional("role", schemas::role()),
        optional("uses", uses.by_default(INVITE_USES_DEFAULT)),
        optional("valid_for_s", seconds.by_default(INVITE_SECONDS_DEFAULT)),
    ]);
    let created = object(vec![
        required("token", text().about("A secret, shown only now.")),
        required("link", text().about("`ic://join/` and the token.")),
        required("mesh_id", text()),
        required("slug", text()),
        required("role", schemas::role()),
        required("uses", schemas::count()),
        required("expires_at", schemas::seconds()),
    ]);
    operation("meshInvite", "Create an invite")
        .about("The token contains the root key of the mesh.")
        .reads(
            body.named("MeshNewInvite"),
            r#"{"uses":5,"valid_for_s":604800}"#,
        )
        .creates("The invite.", created.named("MeshCreatedInvite"))
}

fn rename() -> Operation {
    let body = object(vec![required("name", text().characters(1, 64))]);
    of_member("meshRenameMember", "Change the name of a member")
        .reads(body.named("MeshMemberName"), r#"{"name":"build host"}"#)
        .shows("The member.", schemas::member())
}

fn subscription(id: &'static str, summary: &'static str) -> Operation {
    let body = object(vec![
        required("topic", text().about("The name or the id of the topic.")),
        required("queue", text().characters(1, QUEUE_NAME_CHARS_MAX)),
    ]);
    operation(id, summary)
        .reads(
            body.named("MeshSubscription"),
            r#"{"topic":"alerts","queue":"pages"}"#,
        )
        .shows("The topic.", super::reads::topic())
}

fn grant() -> Operation {
    let body = object(vec![
        required(
            "member",
            schemas::pubkey().about("The member that may do it."),
        ),
        optional(
            "grants",
            list(schemas::grant())
                .nullable()
                .about("An empty list blocks the member; null is what members may by default."),
        ),
    ]);
    of_member(
        "meshSetGrants",
        "Set what a member lets another member do",
    )
    .about("The member in the path is the recipient; members set it themselves with a frame `set_grants`.")
    .reads(body.named("MeshNewGrants"), "")
    .shows("The member in the path.", schemas::member())
}

fn create_key() -> Operation {
    let body = object(vec![
        required("member", schemas::pubkey()),
        required("capabilities", list(schemas::capability())),
        optional("topics", list(text()).items(0, API_KEY_TOPICS_MAX)),
        optional("label", text().characters(0, API_KEY_LABEL_CHARS_MAX)),
    ]);
    operation("meshCreateKey", "Create an API key for a member")
        .reads(body.named("MeshNewKey"), "")
        .creates("The key.", schemas::created_api_key())
}
