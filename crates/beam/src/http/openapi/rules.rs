//! Access rules, delegations and DID documents.

use consign_kernel::error::Code;
use consign_web::openapi::schema::{
    Schema, anything, boolean, integer, list, object, optional, required, text,
};
use consign_web::openapi::{Endpoint, Operation};
use http::StatusCode;

use super::DIRECTORY;
use super::operation::{AGENT_OR_ADMIN, ANYONE, BeamOperation as _, delete, get, post};
use super::schemas::{beam_id, count, instant, milliseconds, signature};
use crate::directory::{ALLOWED_FROM_CHARS_MAX, INTENT_CHARS_MAX, SCOPE_CHARS_MAX};

const RULE: &str = r#"{"targetBeamId":"desk@acme.beam.directory","intentType":"conversation.message","allowedFrom":"*"}"#;
const DELEGATION: &str = r#"{"grantee_beam_id":"night@acme.beam.directory","scope":"conversation.message","expires_at":1893456000000,"signature":"gUbsf0KqbZ1kUv6rI0E7m1Dq1rTqk2pWcRnYcMBN9VYk0mVn6bW8qXlq7r7pX1lTz0qk8yS4m9d2v3mJ4kT5Ag=="}"#;

pub(super) fn all() -> Vec<Endpoint> {
    let mut all = access_rules();
    all.extend(delegations());
    all.push(get("/did/{did}", did()));
    all
}

fn open(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(DIRECTORY, ANYONE, id, summary)
}

fn access_rules() -> Vec<Endpoint> {
    let body = object(vec![
        required("targetBeamId", beam_id()),
        required("intentType", text().characters(1, INTENT_CHARS_MAX)),
        required(
            "allowedFrom",
            text()
                .about("A Beam-ID, or a pattern of Beam-IDs.")
                .characters(1, ALLOWED_FROM_CHARS_MAX),
        ),
    ]);
    let rules = object(vec![
        required("total", count()),
        required("acl", list(rule())),
    ]);
    let removed = object(vec![
        required("ok", boolean().always(true)),
        required("id", integer()),
    ]);
    vec![
        post(
            "/acl",
            Operation::new(
                DIRECTORY,
                AGENT_OR_ADMIN,
                "beamAddRule",
                "Allow senders to send an intent",
            )
            .about("The same rule is stored once. Field names in snake_case are accepted too.")
            .takes_object(body.named("BeamNewRule"), RULE)
            .answers(StatusCode::CREATED, "The rule.", rule(), "")
            .refuses(&[Code::InvalidAcl, Code::AclError, Code::Forbidden]),
        ),
        get(
            "/acl/{name}",
            open("beamRules", "List the access rules of an agent")
                .path("name", beam_id())
                .shows("The rules.", rules.named("BeamRules"), "")
                .refuses(&[Code::InvalidBeamId, Code::NotFound]),
        ),
        delete(
            "/acl/{name}",
            Operation::new(
                DIRECTORY,
                AGENT_OR_ADMIN,
                "beamRemoveRule",
                "Remove an access rule",
            )
            .path(
                "name",
                integer().about("The id of the rule.").rule("minimum", 1),
            )
            .ignores_body()
            .shows("The rule is removed.", removed.named("BeamRemovedRule"), "")
            .refuses(&[Code::InvalidAclId, Code::Forbidden, Code::NotFound]),
        ),
    ]
}

fn rule() -> Schema {
    object(vec![
        required("id", integer()),
        required("target_beam_id", beam_id()),
        required("intent_type", text()),
        required("allowed_from", text()),
        required("created_at", instant()),
    ])
    .named("BeamRule")
}

fn delegations() -> Vec<Endpoint> {
    let body = object(vec![
        required("grantee_beam_id", beam_id()),
        required("scope", text().characters(1, SCOPE_CHARS_MAX)),
        required("expires_at", milliseconds().about("In the future.")),
        required("signature", signature("Of the grantor's current key.")),
    ]);
    let granted = object(vec![
        required("total", count()),
        required("delegations", list(delegation())),
    ]);
    let revoked = object(vec![
        required("revoked", boolean().always(true)),
        required("id", integer()),
    ]);
    let revocation = object(vec![required(
        "signature",
        signature("Of the grantor's current key."),
    )]);
    vec![
        post(
            "/agents/{beam_id}/delegate",
            open("beamDelegate", "Delegate a scope to another agent")
                .about("Signed by the grantor, which is in the path.")
                .takes_object(body.named("BeamNewDelegation"), DELEGATION)
                .answers(StatusCode::CREATED, "The delegation.", delegation(), "")
                .refuses(&[Code::InvalidDelegation, Code::CallbackSignature]),
        ),
        get(
            "/agents/{beam_id}/delegations",
            open("beamDelegations", "List the delegations of an agent").shows(
                "The delegations in force.",
                granted.named("BeamDelegations"),
                "",
            ),
        ),
        delete(
            "/agents/{beam_id}/delegations/{id}",
            open("beamRevokeDelegation", "Revoke a delegation")
                .path("id", integer().rule("minimum", 1))
                .takes_object(revocation.named("BeamDelegationRevocation"), "")
                .shows(
                    "The delegation is revoked.",
                    revoked.named("BeamRevokedDelegation"),
                    "",
                )
                .refuses(&[Code::InvalidDelegation, Code::CallbackSignature]),
        ),
    ]
}

fn delegation() -> Schema {
    object(vec![
        required("id", integer()),
        required("grantorBeamId", beam_id()),
        required("granteeBeamId", beam_id()),
        required("scope", text()),
        required("createdAt", milliseconds()),
        required("expiresAt", milliseconds()),
        required("revoked", boolean()),
    ])
    .named("BeamDelegation")
}

fn did() -> Operation {
    let method = object(vec![
        required("id", text()),
        required("type", text()),
        required("controller", text()),
        required("publicKeyMultibase", text()),
        required("beamStatus", text().one_of(["active", "revoked"])),
        optional("beamRevokedAt", instant()),
    ]);
    let document = object(vec![
        required("@context", list(text())),
        required("id", text()),
        optional("alsoKnownAs", list(text())),
        required("verificationMethod", list(method)),
        required("authentication", list(text())),
        required("assertionMethod", list(text())),
        required("capabilityInvocation", list(text())),
        required("capabilityDelegation", list(text())),
        required("service", list(anything())),
    ]);
    open("beamDid", "Resolve a DID")
        .path(
            "did",
            text().about(
                "`did:beam:<org>:<agent>`, `did:beam:<agent>`, or `did:beam:` and a multibase key.",
            ),
        )
        .shows("The DID document.", document.named("BeamDidDocument"), "")
        .refuses(&[Code::NotFound])
}
