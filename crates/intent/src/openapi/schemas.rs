//! The schemas of requests and responses.
//!
//! Numbers and names come from the kernel's limits and tables, so that the documentation matches the rules.

use consign_engine::{BulkState, NodeState, OperatorAction, REFUSALS_KEPT};
use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use consign_kernel::limits;
use consign_kernel::profile::{Face, ProfileId};
use consign_kernel::receipt;
use consign_kernel::state::{Cause, Verb};

use consign_web::openapi::schema::{
    Schema, SchemaField, anything, boolean, either, exactly, integer, list, number, object,
    optional, required, text,
};

/// Reserved for other faces.
const NAMESPACE_PATTERN: &str = r"^(?!beam\.|mesh\.)[A-Za-z0-9._-]+$";
const ANY_NAMESPACE_PATTERN: &str = "^[A-Za-z0-9._-]+$";
const LABEL_PATTERN: &str = "^[A-Za-z0-9_.:-]+$";
/// A character that is not white space. Spelled out, because the definition of white space differs between languages.
const SOMETHING_PATTERN: &str = "[^\\u0009-\\u000d\\u0020\\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";

pub(super) fn id() -> Schema {
    text().about("The id of the intent.").hex_digits(32)
}

pub(super) fn claim_token() -> Schema {
    text().about("The claim_token of your claim, which proves that you hold the lease.")
}

fn token() -> Schema {
    text()
        .about("Proves that you hold the lease; send it with every request for this intent.")
        .hex_digits(32)
}

pub(super) fn namespace() -> Schema {
    text()
        .about("A separate queue; letters, digits and . - _ only. Names beginning with beam. or mesh. are reserved.")
        .characters(1, limits::NAMESPACE_CHARS_MAX)
        .rule("pattern", NAMESPACE_PATTERN)
}

/// For claims, where reserved names are allowed with a grant.
pub(super) fn claimed_namespace() -> Schema {
    text()
        .about("A separate queue; letters, digits and . - _ only. A name beginning with beam. or mesh. needs a grant: beam.AGENT.ORG is the queue of messages to AGENT@ORG.beam.directory.")
        .characters(1, limits::NAMESPACE_CHARS_MAX)
        .rule("pattern", ANY_NAMESPACE_PATTERN)
}

/// A namespace of another protocol.
pub(super) fn granted_namespace() -> Schema {
    text()
        .about("beam.AGENT.ORG for AGENT@ORG.beam.directory, beam.AGENT for AGENT@beam.directory.")
        .characters(1, limits::NAMESPACE_CHARS_MAX)
        .rule("pattern", r"^beam\.[a-z0-9_-]+(\.[a-z0-9_-]+)?$")
}

/// For reads and purges, where reserved names are allowed.
pub(super) fn any_namespace() -> Schema {
    text()
        .about("Only this namespace.")
        .characters(1, limits::NAMESPACE_CHARS_MAX)
        .rule("pattern", ANY_NAMESPACE_PATTERN)
}

fn shown_namespace() -> Schema {
    text().about("The namespace of the intent.")
}

fn goal() -> Schema {
    text()
        .about("The kind of work; workers claim by it. White space around it is removed.")
        .characters(1, limits::GOAL_CHARS_MAX)
        .rule("pattern", SOMETHING_PATTERN)
}

fn shown_goal() -> Schema {
    text().about("The kind of work.")
}

fn label(about: &'static str) -> Schema {
    text()
        .about(about)
        .characters(1, limits::LABEL_CHARS_MAX)
        .rule("pattern", LABEL_PATTERN)
}

/// The names of the four states.
pub(super) fn status() -> Schema {
    let words = ProfileId::Intent.profile().words;
    text()
        .about("The state of the intent.")
        .one_of(words.iter().map(|(_, _, word)| *word))
}

fn visibility() -> Schema {
    text()
        .about("Who may claim it: holders of your key only, or of any key.")
        .one_of(["private", "public"])
}

fn result_type() -> Schema {
    text()
        .about("The type of the result.")
        .one_of(["json", "text"])
}

fn seconds(about: &'static str) -> Schema {
    number().about(about).limit("Unix time in seconds")
}

/// One intent to publish.
pub(super) fn new_intent() -> Schema {
    object(new_intent_fields()).named("NewIntent")
}

/// One intent of a batch to publish.
pub(super) fn batch_intent() -> Schema {
    let mut fields = new_intent_fields();
    let key = text()
        .about("A second publish with the same key within 24 hours returns the same intent.")
        .characters(1, limits::IDEMPOTENCY_KEY_BYTES_MAX)
        .nullable();
    fields.push(optional("idempotency_key", key));
    object(fields)
        .limit(format!("{} bytes", limits::BODY_BYTES_MAX))
        .named("BatchIntent")
}

fn new_intent_fields() -> Vec<SchemaField> {
    let payload = anything().about("The data for the worker.").limit(format!(
        "{} bytes of compact JSON",
        limits::PAYLOAD_BYTES_MAX
    ));
    let delay = number()
        .about("Seconds before the intent can be claimed.")
        .within(0.0, Micros(limits::INTENT_TTL_US - 1).seconds())
        .by_default(0)
        .nullable();
    vec![
        required("goal", goal()),
        required("payload", payload),
        optional("namespace", namespace().by_default("default").nullable()),
        optional("visibility", visibility().by_default("private").nullable()),
        optional(
            "priority",
            integer()
                .about("Intents with a higher priority are claimed first.")
                .within(0, limits::PRIORITY_MAX)
                .by_default(limits::PRIORITY_DEFAULT)
                .nullable(),
        ),
        optional("delay", delay),
        optional(
            "max_attempts",
            integer()
                .about("The maximum number of attempts before the intent is dead.")
                .clamped_to(1, limits::ATTEMPTS_MAX)
                .by_default(limits::ATTEMPTS_DEFAULT)
                .nullable(),
        ),
        optional(
            "backoff_base",
            number()
                .about("Seconds of back-off. After the nth failed attempt, this times 2^n and up to 2 seconds more pass: twice as many before the second attempt.")
                .clamped_to(limits::BACKOFF_BASE_MIN_S, limits::BACKOFF_BASE_MAX_S)
                .by_default(limits::BACKOFF_BASE_DEFAULT_S)
                .nullable(),
        ),
        optional(
            "target_worker",
            label("Only the worker with this id can claim it.").nullable(),
        ),
        optional(
            "required_capability",
            label("Only workers with this capability can claim it.").nullable(),
        ),
    ]
}

pub(super) fn published() -> Schema {
    exactly(vec![
        required("id", id()),
        required("status", text().always("published")),
        required("namespace", shown_namespace()),
    ])
    .named("Published")
}

/// A claimed intent.
pub(super) fn claim() -> Schema {
    exactly(vec![
        required("id", id()),
        required("claim_token", token()),
        required(
            "claim_attempts",
            integer().about("The number of this attempt; the first is 1."),
        ),
        required(
            "claim_timeout",
            integer()
                .about("Seconds until the lease ends, unless you extend it.")
                .always(limits::LEASE_DEFAULT_S),
        ),
        required("goal", shown_goal()),
        required("namespace", shown_namespace()),
        required("priority", integer()),
        required("target_worker", text().nullable()),
        required("required_capability", text().nullable()),
        optional(
            "traceparent",
            text().about("The publisher's trace context, if it sent one."),
        ),
        optional(
            "source",
            object(vec![required("protocol", text())])
                .about("Only in reserved namespaces: where the row comes from. A Beam message has sender, recipient, nonce and trace_id."),
        ),
        required("payload", anything().about("As it was published.")),
    ])
    .named("Claim")
}

pub(super) fn claims() -> Schema {
    list(claim())
}

/// One intent, or a list of them if `max` was given.
pub(super) fn claim_answer() -> Schema {
    either(vec![claim(), exactly(vec![required("intents", claims())])])
}

/// How an intent was settled, for the fields of `/fulfill` and `/fail` and of a batch.
pub(super) fn outcome_fields() -> Vec<SchemaField> {
    let result = anything()
        .about("The result; a string if result_type is text.")
        .limit(format!("{} bytes", limits::RESULT_BYTES_MAX));
    vec![
        optional("result", result),
        optional("result_type", result_type().by_default("json").nullable()),
    ]
}

pub(super) fn failure_fields() -> Vec<SchemaField> {
    let error = anything()
        .about("The reason of the failure; a value that is not a string is stored as JSON text.")
        .limit(format!(
            "of more than {} bytes of text the beginning and the end are kept",
            limits::ERROR_BYTES_MAX
        ));
    let retry = boolean()
        .about(
            "False: no attempt can succeed, so the intent is dead now. Not together with retry_in.",
        )
        .by_default(true)
        .nullable();
    let retry_in = number()
        .about("Seconds before the next attempt, instead of the back-off. Less than the rest of the intent's life; without attempts left the intent is dead all the same.")
        .rule("minimum", 0)
        .nullable();
    vec![
        optional("error", error),
        optional("retry", retry),
        optional("retry_in", retry_in),
    ]
}

/// A result that is text must be a string.
pub(super) fn with_text_rule(schema: Schema) -> Schema {
    schema
        .rule(
            "if",
            serde_json::json!({
                "required": ["result_type"],
                "properties": {"result_type": {"const": "text"}},
            }),
        )
        .rule(
            "then",
            serde_json::json!({"properties": {"result": {"type": ["string", "null"]}}}),
        )
}

pub(super) fn done() -> Schema {
    exactly(vec![required("ok", boolean().always(true))]).named("Done")
}

pub(super) fn settled() -> Schema {
    exactly(vec![
        required("ok", boolean().always(true)),
        required("id", id()),
    ])
    .named("Settled")
}

pub(super) fn failed() -> Schema {
    exactly(vec![
        required("ok", boolean().always(true)),
        required("id", id()),
        optional("error_truncated", error_truncated()),
    ])
    .named("Failed")
}

fn error_truncated() -> Schema {
    boolean()
        .about("The error was too long: its beginning and its end are kept. Absent otherwise.")
        .always(true)
}

/// The result of one item of a batch of settlements.
pub(super) fn settled_item() -> Schema {
    let code = text().one_of(
        [
            Code::InvalidRequest,
            Code::InvalidAction,
            Code::InvalidResult,
            Code::InvalidResultType,
            Code::ResultTooLarge,
            Code::InvalidRetry,
            Code::NotFound,
        ]
        .map(Code::name),
    );
    let error = exactly(vec![required("code", code), required("message", text())])
        .about("Why this item was refused; absent if it was not.");
    exactly(vec![
        required("id", text().about("As it was sent.")),
        required("ok", boolean()),
        optional("error", error),
        optional("error_truncated", error_truncated()),
    ])
    .named("SettledItem")
}

/// Fields that every view of an intent begins with.
fn head() -> Vec<SchemaField> {
    vec![
        required("id", id()),
        required("namespace", shown_namespace()),
        required("goal", shown_goal()),
        required("status", status()),
        required("priority", integer()),
        required("visibility", visibility()),
        required(
            "claim_attempts",
            integer().about("How often it was claimed."),
        ),
        required("run_at", seconds("When it may be claimed.")),
        required(
            "claim_expires_at",
            seconds("When the lease ends, while there is one.").nullable(),
        ),
        required("target_worker", text().nullable()),
        required("required_capability", text().nullable()),
        optional("worker", worker()),
    ]
}

fn worker() -> Schema {
    text().about("The id that the last claimer gave itself; absent if it gave none.")
}

pub(super) fn intent_status() -> Schema {
    let mut fields = head();
    fields.push(required("completed_at", completed_at()));
    fields.push(required("last_error", last_error()));
    exactly(fields).named("IntentStatus")
}

pub(super) fn intent_result() -> Schema {
    let mut fields = head();
    fields.extend([
        required("result_type", result_type()),
        required("result", anything().about("Null until there is one.")),
        required("completed_at", completed_at()),
        optional(
            "error",
            text().about("Why the last attempt failed; absent if none did."),
        ),
    ]);
    exactly(fields).named("IntentResult")
}

fn completed_at() -> Schema {
    seconds("When it was fulfilled.").nullable()
}

fn last_error() -> Schema {
    text().about("Why the last attempt failed.").nullable()
}

pub(super) fn intent_detail() -> Schema {
    exactly(vec![
        required("id", id()),
        required("namespace", shown_namespace()),
        required("goal", shown_goal()),
        required("payload", anything()),
        required("status", status()),
        required("priority", integer()),
        required("target_worker", text().nullable()),
        required("required_capability", text().nullable()),
        required("publisher", key_id("Who published it.")),
        required("claimed_by", key_id("Who claimed it last.").nullable()),
        required(
            "worker",
            text()
                .about("The id that the last claimer gave itself.")
                .nullable(),
        ),
        required("claim_token", token().nullable()),
        required("claim_attempts", integer()),
        required("max_attempts", integer()),
        required("backoff_base", number().about("Seconds.")),
        required("visibility", visibility()),
        required("last_error", last_error()),
        required("created_at", seconds("When it was published.")),
        required("expires_at", seconds("When it expires.")),
        required("run_at", seconds("When it may be claimed.")),
        required("claimed_at", seconds("When it was claimed.").nullable()),
        required(
            "claim_expires_at",
            seconds("When the lease ends, while there is one.").nullable(),
        ),
        required("failed_at", seconds("When it became dead.").nullable()),
        required("completed_at", completed_at()),
        required("result_type", result_type()),
        required("result", anything().about("Null until there is one.")),
    ])
    .named("IntentDetail")
}

fn key_id(about: &'static str) -> Schema {
    text().about(about).limit("a key id, never a key")
}

pub(super) fn fact() -> Schema {
    let profile = ProfileId::Intent.profile();
    let taken =
        |verb: &&Verb| **verb == Verb::Admit || profile.rows.iter().any(|row| row.on == **verb);
    let verbs = Verb::ALL.iter().filter(taken).map(|verb| verb.fact());
    let causes = Cause::ALL.iter().filter(|cause| **cause != Cause::None);
    exactly(vec![
        required("seq", integer().about("Its position among all facts.")),
        required("at", seconds("When it happened.")),
        required("verb", text().about("What happened.").one_of(verbs)),
        required("from", status().about("The state before.").nullable()),
        required("to", status().about("The state after.")),
        required(
            "cause",
            text()
                .about("The cause, if the verb alone does not tell it.")
                .one_of(causes.map(|cause| cause.name()))
                .nullable(),
        ),
        required("attempt", integer()),
        required(
            "actor",
            text()
                .about("A key id, operator, or null for an expiry.")
                .nullable(),
        ),
        required(
            "worker",
            text()
                .about("The id that the holder of the lease gave itself, for a step of the holder and for the end of its lease.")
                .nullable(),
        ),
        required("detail", text().nullable()),
    ])
    .named("Fact")
}

pub(super) fn signed_receipt() -> Schema {
    let micros = |about| integer().about(about).limit("microseconds since 1970");
    exactly(vec![
        required("type", text().always(receipt::TYPE)),
        required("id", text().about("The receipt.")),
        required("intent", id()),
        required("face", text().always("intent")),
        required("namespace", shown_namespace()),
        required("goal", shown_goal()),
        required(
            "state",
            text().about("The final state.").one_of(["fulfilled", "dead"]),
        ),
        optional("cause", text().about("Why.")),
        required("attempts", integer()),
        required("payload_sha256", text().hex_digits(64)),
        optional("result_sha256", text().hex_digits(64)),
        required("created_at", micros("When it was published.")),
        required("settled_at", micros("When it was settled.")),
        optional(
            "worker",
            text().about("The id that the worker gave itself, or else the key id of the worker."),
        ),
        required("fact", integer().about("The seq of the settling fact.")),
        optional(
            "supersedes",
            text().about("The id of the receipt of the previous settlement, which an operator undid by a cancel or a retry."),
        ),
        required("issuer", text()),
        required("key_id", text().about("The kid of the key that signed it.")),
        required("algorithm", text().always(receipt::ALGORITHM)),
        required(
            "signature",
            text().about("Unpadded base64url, over the canonical JSON of everything else."),
        ),
    ])
    .named("Receipt")
}

fn dead_fields() -> Vec<SchemaField> {
    vec![
        required("intent_id", id()),
        required("namespace", shown_namespace()),
        required("goal", shown_goal()),
        required("attempts", integer()),
        required("reason", text().about("Why it is dead.")),
        optional("worker", worker()),
        required("created_at", seconds("When it became dead.").nullable()),
    ]
}

pub(super) fn dead_letter() -> Schema {
    exactly(dead_fields()).named("DeadLetter")
}

pub(super) fn dead_letter_detail() -> Schema {
    let mut fields = dead_fields();
    fields.extend([
        required("payload", anything()),
        required("publisher", key_id("Who published it.")),
        required("visibility", visibility()),
    ]);
    exactly(fields).named("DeadLetterDetail")
}

/// A server of the ledger.
pub(super) fn node() -> Schema {
    let states = NodeState::ALL.iter().map(|state| state.name());
    exactly(vec![
        required(
            "id",
            integer().about("The id of the node, new with every start."),
        ),
        required("name", text().about("The name that the operator chose.")),
        required("address", text().about("The base URL of the node.")),
        required("version", text()),
        required("started_at", seconds("When it was started.")),
        required("seen_at", seconds("When its last heartbeat was written.")),
        required(
            "state",
            text()
                .about("silent: no heartbeat for six seconds. drained: none of its leases is left.")
                .one_of(states),
        ),
        required("leases", integer().about("The number of its live leases.")),
        required(
            "here",
            boolean().about("Whether it is the node that answers."),
        ),
    ])
    .named("Node")
}

/// A row of any protocol that a search found.
pub(super) fn found_intent() -> Schema {
    let faces = Face::ALL.iter().map(|face| face.name());
    exactly(vec![
        required("id", id()),
        required("face", text().about("Its protocol.").one_of(faces)),
        required("state", text().about("In the word of its protocol.")),
        required("namespace", shown_namespace()),
        required("goal", shown_goal()),
        required("owner", key_id("Who published it.")),
        required("claimed_by", key_id("Who claimed it last.").nullable()),
        required(
            "worker",
            text()
                .about("The id that the last claimer gave itself.")
                .nullable(),
        ),
        required("priority", integer()),
        required("attempts", integer()),
        required("max_attempts", integer()),
        required("last_error", last_error()),
        required("age", number().about("Seconds since it was published.")),
        required("created_at", seconds("When it was published.")),
        required("run_at", seconds("When it may be claimed.")),
        required("claimed_at", seconds("When it was claimed.").nullable()),
        required("settled_at", seconds("When it ended.").nullable()),
        required("expires_at", seconds("When it expires.")),
    ])
    .named("FoundIntent")
}

/// A bulk job and how far it is.
pub(super) fn bulk_job() -> Schema {
    let refusal = exactly(vec![
        required("id", id()),
        required("code", text().about("Why it was not changed.")),
    ]);
    let states = BulkState::ALL.iter().map(|state| state.name());
    exactly(vec![
        required("id", id().about("The id of the job.")),
        required("action", bulk_action()),
        required("filter", text()),
        required("state", text().one_of(states)),
        required(
            "matching",
            integer()
                .about("How many rows matched when it began; null if there were too many to count at once.")
                .nullable(),
        ),
        required("examined", integer().about("How many rows it has looked at.")),
        required("done", integer().about("How many rows it has changed.")),
        required(
            "refused",
            object(Vec::new()).about("How many rows it could not change, by the reason."),
        ),
        required(
            "refusals",
            list(refusal)
                .about("The first of them.")
                .items(0, REFUSALS_KEPT),
        ),
        required("created_at", seconds("When it began.")),
        required("ended_at", seconds("When it ended.").nullable()),
    ])
    .named("BulkJob")
}

pub(super) fn bulk_action() -> Schema {
    let actions = OperatorAction::ALL.iter().map(|action| action.name());
    text().about("What is done with each row.").one_of(actions)
}

/// A page of dead letters.
pub(super) fn dead_page(cursor: Schema) -> Schema {
    exactly(vec![
        required("dead", list(dead_letter())),
        required("cursor", cursor),
    ])
}

pub(super) fn operated() -> Schema {
    let status =
        text().about("Its new state, in the word of its protocol: open or dead for an intent.");
    exactly(vec![
        required("ok", boolean().always(true)),
        required("id", id()),
        required("status", status),
    ])
}
