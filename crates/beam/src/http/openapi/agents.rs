//! Agents: registration, lookup, lists, updates and deletion.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, boolean, integer, list, number, object, optional, required, text,
};
use consign_web::openapi::{Endpoint, Operation};
use http::StatusCode;

use super::DIRECTORY;
use super::operation::{AGENT_OR_ADMIN, ANYONE, BeamOperation as _, delete, get, patch, post};
use super::schemas::{
    agent, agent_fields, beam_id, connected, connected_agent, count, instant, key_state,
    public_key, signature, tier, visibility,
};
use crate::directory::PAGE_AGENTS_MAX;
use crate::directory::registration::{
    CAPABILITIES_MAX, CAPABILITY_CHARS_MAX, DESCRIPTION_BYTES_MAX, DH_KEY_CHARS_MAX,
    DISPLAY_NAME_CHARS_MAX, EMAIL_CHARS_MAX, URL_CHARS_MAX,
};
use crate::http::agents::{BROWSE_DEFAULT, SEARCH_DEFAULT};

const REGISTRATION: &str = r#"{"beamId":"desk@acme.beam.directory","displayName":"Front desk","capabilities":["conversation.message"],"publicKey":"MCowBQYDK2VwAyEAebVWLo/mVPlAeLES6KmLp5AfhTrmlb7X4OORC60ElmQ=","visibility":"public"}"#;
const PROFILE: &str = r#"{"description":"Answers visitors.","logo_url":null}"#;

pub(super) fn all() -> Vec<Endpoint> {
    let mut all = lists();
    all.extend(updates());
    all.extend([
        post("/agents/register", register()),
        get("/agents/{beam_id}", lookup()),
        delete(
            "/agents/{beam_id}",
            operation("beamDeleteAgent", "Delete an agent")
                .about("Needs the agent's API key or an administrator's session.")
                .ignores_body()
                .without_content(StatusCode::NO_CONTENT, "The agent is deleted.")
                .refuses(&[Code::Unauthorized]),
        ),
    ]);
    all
}

fn operation(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(DIRECTORY, AGENT_OR_ADMIN, id, summary)
}

fn open(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(DIRECTORY, ANYONE, id, summary)
}

fn register() -> Operation {
    let mut fields = agent_fields();
    fields.extend([
        required("keyState", key_state()),
        required(
            "apiKey",
            text().about("Shown once. A registration replaces the earlier API key."),
        ),
        required("verification_email_sent", boolean().always(false)),
    ]);
    operation("beamRegisterAgent", "Register an agent")
        .about(
            "Field names in snake_case are accepted too. A known agent is registered again with its API key, an administrator's \
             session, or `signature` and `timestamp` of its current key; on this machine, the same key suffices.",
        )
        .takes_object(registration(), REGISTRATION)
        .answers(
            StatusCode::CREATED,
            "The agent and its API key.",
            object(fields).named("BeamRegisteredAgent"),
            "",
        )
        .refuses(&[
            Code::InvalidCapabilities,
            Code::InvalidDisplayName,
            Code::InvalidEmail,
            Code::InvalidPublicKey,
            Code::InvalidPublicKeyFormat,
            Code::InvalidLogoUrl,
            Code::InvalidVerificationTier,
            Code::InvalidBeamId,
            Code::OrgMismatch,
            Code::InvalidHttpEndpoint,
            Code::InvalidRotation,
            Code::KeyAlreadyRevoked,
            Code::KeyRotationRequired,
            Code::Forbidden,
        ])
}

fn registration() -> Schema {
    let capability = text().characters(1, CAPABILITY_CHARS_MAX);
    object(vec![
        optional(
            "beamId",
            beam_id().about("Derived from the other fields if it is absent."),
        ),
        required("displayName", text().characters(1, DISPLAY_NAME_CHARS_MAX)),
        required(
            "capabilities",
            list(capability).rule("maxItems", CAPABILITIES_MAX),
        ),
        required("publicKey", public_key()),
        optional("org", text()),
        optional("email", text().rule("maxLength", EMAIL_CHARS_MAX)),
        optional(
            "description",
            text().rule("maxLength", DESCRIPTION_BYTES_MAX),
        ),
        optional("logoUrl", web_address()),
        optional(
            "verificationTier",
            tier().about("Checked and ignored: only operators set it."),
        ),
        optional("visibility", visibility()),
        optional("httpEndpoint", endpoint_url()),
        optional("dhPublicKey", dh_key()),
        optional("signature", signature("Of the agent's current key.")),
        optional("timestamp", instant()),
    ])
    .named("BeamRegistration")
}

fn web_address() -> Schema {
    text()
        .rule("format", "uri")
        .rule("maxLength", URL_CHARS_MAX)
}

fn endpoint_url() -> Schema {
    text()
        .rule("format", "uri")
        .about("A public HTTPS URL that receives intents while the agent is not connected.")
}

fn dh_key() -> Schema {
    text().rule("maxLength", DH_KEY_CHARS_MAX)
}

fn lookup() -> Operation {
    let mut fields = agent_fields();
    fields.extend([
        required("connected", connected()),
        required("keyState", key_state()),
        required(
            "intentStats",
            object(vec![
                required("received", count()),
                required("responded", count()),
                required("avg_response_time_ms", number().nullable()),
            ]),
        ),
    ]);
    open("beamAgent", "Get an agent").shows(
        "The agent, its keys and its figures.",
        object(fields).named("BeamAgentDetails"),
        "",
    )
}

fn lists() -> Vec<Endpoint> {
    let found = object(vec![
        required("agents", list(agent())),
        required("total", count().about("The number of agents in this list.")),
    ]);
    let page = object(vec![
        required("agents", list(agent())),
        required("total", count().about("The number of all matches.")),
        required("page", integer()),
        required("limit", integer()),
        required("pageSize", integer()),
    ]);
    let listed = object(vec![
        required("agents", list(connected_agent())),
        required("total", count().about("The number of all agents.")),
        required("listed", count().about("The number of public agents.")),
    ]);
    let figures = object(vec![
        required("total_agents", count()),
        required("verified_agents", count()),
        required("intents_processed", count()),
        required("avg_response_time_ms", number().nullable()),
    ]);
    let search = open("beamSearchAgents", "Search agents")
        .query(
            "q",
            text().about("Text in the name, the id or the description."),
        )
        .query("org", text())
        .query(
            "capabilities",
            text().about("Separated by commas; an agent has all of them."),
        )
        .query("minTrustScore", number().within(0, 1))
        .query("verificationTier", tier())
        .query("limit", limit(SEARCH_DEFAULT))
        .shows("The agents that match.", found.named("BeamAgentSearch"), "")
        .refuses(&[Code::InvalidParam]);
    let browse = open("beamBrowseAgents", "List agents page by page")
        .query("capability", text())
        .query("verification_tier", tier().about("May be called `tier`."))
        .query("verified_only", text().one_of(["1", "true", "yes"]))
        .query("page", integer().rule("minimum", 1).by_default(1))
        .query("limit", limit(BROWSE_DEFAULT))
        .query(
            "pageSize",
            integer()
                .rule("minimum", 1)
                .about("Read if `limit` is absent."),
        )
        .shows("A page of agents.", page.named("BeamAgentPage"), "")
        .refuses(&[Code::InvalidParam, Code::InvalidVerificationTier]);
    vec![
        get("/agents/search", search),
        get("/agents/browse", browse),
        get(
            "/agents/stats",
            open("beamAgentStats", "Get figures of the directory").shows(
                "The figures.",
                figures.named("BeamDirectoryStats"),
                "",
            ),
        ),
        get(
            "/directory/agents",
            open("beamPublicAgents", "List the public agents")
                .about(
                    "A private directory answers other directories and administrators only. \
                     The list has no pages.",
                )
                .shows("The public agents.", listed.named("BeamPublicAgents"), "")
                .refuses(&[Code::PrivateDirectory]),
        ),
    ]
}

fn limit(default: u32) -> Schema {
    integer().limit(format!(
        "a positive number, default {default}; at most {PAGE_AGENTS_MAX} agents are returned"
    ))
}

fn updates() -> Vec<Endpoint> {
    let profile = object(vec![
        optional(
            "description",
            text().nullable().rule("maxLength", DESCRIPTION_BYTES_MAX),
        ),
        optional("logo_url", web_address().nullable()),
        optional("website", web_address().nullable()),
    ]);
    let visibility_body = object(vec![
        required("visibility", visibility()),
        optional(
            "signature",
            signature("Instead of an API key or a session."),
        ),
        optional("timestamp", instant()),
    ]);
    let config = object(vec![
        optional("httpEndpoint", endpoint_url().nullable()),
        optional("dhPublicKey", dh_key().nullable()),
        optional(
            "signature",
            signature("Instead of an API key or a session."),
        ),
        optional("timestamp", instant()),
    ]);
    let configured = object(vec![
        required("beamId", beam_id()),
        required("httpEndpoint", text().nullable()),
        required("dhPublicKey", text().nullable()),
    ]);
    vec![
        post(
            "/agents/{beam_id}/heartbeat",
            signed(open("beamHeartbeat", "Report that an agent is alive"))
                .ignores_body()
                .shows("The agent.", agent(), ""),
        ),
        patch(
            "/agents/{beam_id}/profile",
            signed(open("beamUpdateProfile", "Change the profile of an agent"))
                .about("An absent field is kept; null or blank text clears it.")
                .takes_object(profile.named("BeamProfileUpdate"), PROFILE)
                .shows("The agent.", agent(), "")
                .refuses(&[Code::InvalidLogoUrl, Code::InvalidParam]),
        ),
        patch(
            "/agents/{beam_id}/visibility",
            operation("beamSetVisibility", "Change the visibility of an agent")
                .takes_object(
                    visibility_body.named("BeamVisibilityUpdate"),
                    r#"{"visibility":"public"}"#,
                )
                .shows("The agent.", agent(), "")
                .refuses(&[Code::InvalidParam]),
        ),
        patch(
            "/agents/{beam_id}/config",
            operation(
                "beamSetConfig",
                "Change the endpoint or the key exchange key of an agent",
            )
            .about("An absent field is kept; null or blank text clears it.")
            .takes_object(
                config.named("BeamConfigUpdate"),
                r#"{"httpEndpoint":"https://desk.acme.example/beam"}"#,
            )
            .shows("The configuration.", configured.named("BeamConfig"), "")
            .refuses(&[Code::InvalidHttpEndpoint]),
        ),
    ]
}

/// Signed in the headers by the agent's current key; a nonce counts once.
fn signed(operation: Operation) -> Operation {
    operation
        .header(
            "x-beam-signature",
            signature("Required. Of the agent's current key."),
        )
        .header("x-beam-timestamp", instant().about("Required."))
        .header("x-beam-nonce", text().about("Required. Accepted once."))
        .refuses(&[Code::Unauthorized])
}
