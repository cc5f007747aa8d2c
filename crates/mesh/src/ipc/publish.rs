//! The body of `/v1/intents`: an intent that is published at the server of the Intent Protocol, through the outbox.
//!
//! Invariant: what the server would refuse by its form is refused here, before it has a row and uses up its id. The text that
//! is stored is the one that is sent at every attempt; the server decides what else there is to decide.

use std::fmt::{self, Write as _};

use consign_kernel::json::{self, JsonKind, Object, Raw};
use consign_kernel::limits::{
    BODY_BYTES_MAX, GOAL_CHARS_MAX, INTENT_TTL_US, JSON_DEPTH_MAX, LABEL_CHARS_MAX,
    NAMESPACE_CHARS_MAX, PAYLOAD_BYTES_MAX, PRIORITY_MAX,
};
use consign_store::sqlite::OUTBOX_INTENT_KIND;

use super::IpcRefusal;
use super::request::{check_mesh, invalid_id, text};
use crate::client_message_id::ClientMessageId;
use crate::fingerprint::RequestFingerprint;
use crate::id::MeshSlug;
use crate::limits::IPC_BODY_BYTES_MAX;
use crate::ulid::MeshUlid;

/// The kind of destination that rows of intents have. It is a word of the daemon alone; the broker does not know it.
pub const INTENT_KIND: &str = OUTBOX_INTENT_KIND;

/// Queues of other protocols, in which nobody publishes.
const RESERVED: [&str; 2] = ["beam.", "mesh."];

/// The members of a request, in the order in which it is written.
const MEMBERS: [&str; 10] = [
    "goal",
    "payload",
    "namespace",
    "visibility",
    "priority",
    "delay",
    "max_attempts",
    "backoff_base",
    "target_worker",
    "required_capability",
];

/// Members for the daemon.
const OF_DAEMON: [&str; 2] = ["client_message_id", "mesh"];

/// A request to publish an intent, with the id of its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpcPublish {
    pub intent: IntentRequest,
    /// From the header or the body; `None` if the daemon must mint one.
    client_message_id: Option<String>,
}

impl IpcPublish {
    pub fn parse(
        body: &[u8],
        idempotency_key: Option<&str>,
        own: &MeshSlug,
    ) -> Result<Self, IpcRefusal> {
        if body.len() > IPC_BODY_BYTES_MAX {
            return Err(IpcRefusal::payload_too_large());
        }
        let object = object(body)?;
        check_mesh(&object, own)?;
        let of_body = text(&object, "client_message_id")?;
        let client_message_id = idempotency_key.map(str::to_owned).or(of_body);
        if let Some(id) = &client_message_id {
            ClientMessageId::parse(id).map_err(invalid_id)?;
        }
        Ok(Self {
            intent: IntentRequest::of(&object)?,
            client_message_id,
        })
    }

    /// The id of the request; `mint` is called if the caller named none.
    pub fn id(&self, mint: impl FnOnce() -> MeshUlid) -> Result<ClientMessageId, IpcRefusal> {
        ClientMessageId::choose(self.client_message_id.as_deref(), None, mint).map_err(invalid_id)
    }
}

/// What the server gets, as one text.
#[derive(Clone, PartialEq, Eq)]
pub struct IntentRequest {
    goal: String,
    text: String,
}

/// Shows the goal, and nothing of the payload.
impl fmt::Debug for IntentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntentRequest")
            .field("goal", &self.goal)
            .finish_non_exhaustive()
    }
}

impl IntentRequest {
    /// Reads a request that was stored.
    pub fn parse(text: &str) -> Result<Self, IpcRefusal> {
        Self::of(&object(text.as_bytes())?)
    }

    fn of(object: &Object<'_>) -> Result<Self, IpcRefusal> {
        let known = |name: &str| MEMBERS.contains(&name) || OF_DAEMON.contains(&name);
        if let Some((name, _)) = object.members().iter().find(|(name, _)| !known(name)) {
            return Err(refused(format!("unknown member '{name}'")));
        }
        let goal = object
            .get("goal")
            .ok_or_else(|| refused("missing 'goal'".to_owned()))?;
        let goal = self::goal(goal)?;
        let payload = object
            .get("payload")
            .ok_or_else(|| refused("missing 'payload'".to_owned()))?;
        check_options(object)?;
        let mut text = String::from("{");
        for name in MEMBERS {
            let value = match name {
                "goal" => serde_json::to_string(&goal).ok(),
                "payload" => Some(payload.compact()),
                _ => field(object, name).map(|raw| raw.compact()),
            };
            if let Some(value) = value {
                let comma = if text.len() > 1 { "," } else { "" };
                let _ = write!(text, "{comma}\"{name}\":{value}");
            }
        }
        text.push('}');
        let is_too_large = json::utf8_len(&payload.compact()) > PAYLOAD_BYTES_MAX;
        if is_too_large || text.len() > BODY_BYTES_MAX {
            return Err(IpcRefusal::payload_too_large());
        }
        Ok(Self { goal, text })
    }

    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// The text that the server gets.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same with another payload, which is JSON.
    pub fn with_payload(&self, payload: &str) -> Result<Self, IpcRefusal> {
        let other = Raw::parse(payload.as_bytes(), JSON_DEPTH_MAX)
            .map_err(|_| refused("the payload of an intent must be JSON".to_owned()))?;
        // Of two members with one name, the last one counts.
        let open = self.text.strip_suffix('}').unwrap_or(&self.text);
        Self::parse(&format!("{open},\"payload\":{}}}", other.text()))
    }

    /// What the requests of an id are compared by: the server compares them by the same.
    pub fn fingerprint(&self) -> Result<RequestFingerprint, IpcRefusal> {
        let bytes = json::fingerprint(self.text.as_bytes());
        let bytes = bytes.map_err(|defect| refused(format!("the request is invalid: {defect}")))?;
        Ok(RequestFingerprint::from_bytes(bytes))
    }
}

fn object(body: &[u8]) -> Result<Object<'_>, IpcRefusal> {
    Object::parse(body, JSON_DEPTH_MAX).map_err(|_| refused("invalid_json".to_owned()))
}

fn refused(error: String) -> IpcRefusal {
    IpcRefusal::bad_request(error)
}

/// A member that exists and is not null.
fn field<'a>(object: &Object<'a>, name: &str) -> Option<Raw<'a>> {
    object.get(name).filter(|raw| !raw.is_null())
}

fn goal(raw: Raw<'_>) -> Result<String, IpcRefusal> {
    let text = raw.as_str();
    let goal = text.as_deref().map(str::trim).filter(|goal| {
        (1..=GOAL_CHARS_MAX).contains(&goal.chars().count()) && !goal.contains('\0')
    });
    let rule = format!("invalid 'goal': it must be a string of 1 to {GOAL_CHARS_MAX} characters");
    goal.map(str::to_owned).ok_or_else(|| refused(rule))
}

/// Whether a member has an allowed value.
type MemberRule = fn(Raw<'_>) -> bool;

fn check_options(object: &Object<'_>) -> Result<(), IpcRefusal> {
    if let Some(raw) = field(object, "namespace") {
        let namespace = raw.as_str();
        let is_valid = |text: &str| is_word(text, NAMESPACE_CHARS_MAX, b"._-");
        let Some(namespace) = namespace.filter(|text| is_valid(text)) else {
            return Err(refused(format!(
                "invalid 'namespace': it must be 1 to {NAMESPACE_CHARS_MAX} letters, digits, '.', '-' or '_'"
            )));
        };
        if RESERVED.iter().any(|prefix| namespace.starts_with(prefix)) {
            let rule = "namespaces beginning with beam. or mesh. are reserved";
            return Err(IpcRefusal::new(403, rule));
        }
    }
    for name in ["target_worker", "required_capability"] {
        let is_valid = |text: &str| is_word(text, LABEL_CHARS_MAX, b"_.:-");
        let is_valid = |raw: Raw<'_>| raw.as_str().is_some_and(|text| is_valid(&text));
        if !field(object, name).is_none_or(is_valid) {
            return Err(refused(format!(
                "invalid '{name}': it must be 1 to {LABEL_CHARS_MAX} letters, digits, '_', '.', ':' or '-'"
            )));
        }
    }
    let rules: [(&str, MemberRule, &str); 5] = [
        (
            "visibility",
            |raw| matches!(raw.as_str().as_deref(), Some("private" | "public")),
            "it must be private or public",
        ),
        (
            "priority",
            |raw| {
                let priority = raw.as_i64();
                priority.is_some_and(|priority| (0..=PRIORITY_MAX).contains(&priority))
            },
            "it must be an integer from 0 to 1000",
        ),
        (
            "delay",
            |raw| raw.as_f64().is_some_and(is_shorter_than_a_life),
            "it must be a number of seconds from 0 to less than 86400",
        ),
        (
            "max_attempts",
            |raw| raw.as_i64().is_some(),
            "it must be an integer",
        ),
        (
            "backoff_base",
            |raw| raw.kind() == JsonKind::Number,
            "it must be a number of seconds",
        ),
    ];
    let broken = rules
        .iter()
        .find(|(name, holds, _)| !field(object, name).is_none_or(holds));
    match broken {
        Some((name, _, rule)) => Err(refused(format!("invalid '{name}': {rule}"))),
        None => Ok(()),
    }
}

fn is_word(text: &str, max: usize, further: &[u8]) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || further.contains(&byte);
    (1..=max).contains(&text.len()) && text.bytes().all(allowed)
}

/// In microseconds, as the server compares it.
fn is_shorter_than_a_life(delay_s: f64) -> bool {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a day in microseconds is far below 2^53"
    )]
    let life_us = INTENT_TTL_US as f64;
    delay_s >= 0.0 && (delay_s * 1e6).round() < life_us
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(body: &Value) -> Result<IpcPublish, IpcRefusal> {
        let own = MeshSlug::parse("home").unwrap();
        IpcPublish::parse(body.to_string().as_bytes(), None, &own)
    }

    fn with(name: &str, value: Value) -> Value {
        let mut body = json!({"goal": "mail", "payload": {"to": "me"}});
        body[name] = value;
        body
    }

    #[test]
    fn the_server_gets_the_members_of_its_protocol_and_no_others() {
        let body = r#"{ "mesh": "home", "client_message_id": "m-1", "delay": 1.50, "payload": { "to": [1, 2.0] },
            "goal": " mail ", "namespace": null, "required_capability": "gpu" }"#;
        let own = MeshSlug::parse("home").unwrap();
        let publish = IpcPublish::parse(body.as_bytes(), None, &own).unwrap();
        assert_eq!(
            publish.intent.text(),
            r#"{"goal":"mail","payload":{"to":[1,2.0]},"delay":1.50,"required_capability":"gpu"}"#
        );
        assert_eq!(publish.intent.goal(), "mail");
        let mint = || panic!("the caller named an id");
        assert_eq!(publish.id(mint).unwrap().as_str(), "m-1");
        let header = IpcPublish::parse(body.as_bytes(), Some("h-1"), &own).unwrap();
        assert_eq!(header.id(mint).unwrap().as_str(), "h-1");
        let stored = IntentRequest::parse(publish.intent.text()).unwrap();
        assert_eq!(stored, publish.intent, "a stored request is read as it was");
    }

    #[test]
    fn what_the_server_would_refuse_has_no_row() {
        let cases = [
            (json!({"payload": 1}), 400, "missing 'goal'"),
            (json!({"goal": "mail"}), 400, "missing 'payload'"),
            (with("goal", json!("  ")), 400, "invalid 'goal'"),
            (with("goal", json!("a\u{0}b")), 400, "invalid 'goal'"),
            (with("goal", json!("é".repeat(257))), 400, "invalid 'goal'"),
            (with("namespace", json!("a/b")), 400, "invalid 'namespace'"),
            (with("namespace", json!("mesh.team")), 403, "reserved"),
            (with("visibility", json!("all")), 400, "'visibility'"),
            (with("priority", json!(1001)), 400, "invalid 'priority'"),
            (with("priority", json!(1.5)), 400, "invalid 'priority'"),
            (with("delay", json!(86_400)), 400, "invalid 'delay'"),
            (with("delay", json!(-1)), 400, "invalid 'delay'"),
            (with("max_attempts", json!("3")), 400, "'max_attempts'"),
            (with("backoff_base", json!(true)), 400, "'backoff_base'"),
            (with("target_worker", json!("")), 400, "'target_worker'"),
            (with("required_capability", json!(7)), 400, "'required_cap"),
            (with("capability", json!("gpu")), 400, "unknown member 'cap"),
            (with("mesh", json!("other")), 404, "mesh_not_attached"),
            (
                with("client_message_id", json!("a b")),
                400,
                "invalid_client_message_id",
            ),
            (
                with("payload", json!("x".repeat(PAYLOAD_BYTES_MAX - 1))),
                413,
                "payload_too_large",
            ),
        ];
        for (body, status, words) in cases {
            let refusal = parse(&body).unwrap_err();
            assert!(
                refusal.status == status && refusal.error.contains(words),
                "{words}: {refusal:?}"
            );
        }
        for body in [
            with("goal", json!("é".repeat(256))),
            with("priority", json!(1000)),
            with("delay", json!(86_399.9)),
            with("max_attempts", json!(99)),
            with("target_worker", json!("a:b-c_d.e")),
            with("payload", Value::Null),
            with("payload", json!("x".repeat(PAYLOAD_BYTES_MAX - 2))),
        ] {
            parse(&body).unwrap();
        }
    }

    #[test]
    fn requests_are_the_same_if_the_server_takes_them_for_the_same() {
        let of = |text: &str| IntentRequest::parse(text).unwrap().fingerprint().unwrap();
        let one = of(r#"{"goal":"mail","payload":{"a":1,"b":"é"}}"#);
        let same = of(r#"{ "payload" : {"b":"\u00e9", "a":1}, "priority": null, "goal": "mail" }"#);
        assert_eq!(one, same);
        for other in [
            r#"{"goal":"mail","payload":{"a":1,"b":"e"}}"#,
            r#"{"goal":"mails","payload":{"a":1,"b":"é"}}"#,
            r#"{"goal":"mail","payload":{"a":1,"b":"é"},"priority":100}"#,
        ] {
            assert_ne!(one, of(other), "{other}");
        }
    }

    #[test]
    fn another_payload_leaves_the_rest_as_it_was() {
        let first = r#"{"goal":"mail","payload":1,"priority":7}"#;
        let first = IntentRequest::parse(first).unwrap();
        let other = first.with_payload("{\"x\": 2}").unwrap();
        assert_eq!(
            other.text(),
            r#"{"goal":"mail","payload":{"x":2},"priority":7}"#
        );
        assert_eq!(first.with_payload("no json").unwrap_err().status, 400);
        let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
        assert_eq!(first.with_payload(&large).unwrap_err().status, 413);
    }
}
