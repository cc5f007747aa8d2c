//! Who may call, what is read, and the exact bodies of refusals.

use serde_json::{Value, json};

use super::*;
use crate::client_message_id::ClientMessageId;
use crate::destination::{Destination, DestinationKind, Recipient};
use crate::fingerprint::RequestFingerprint;
use crate::id::MeshSlug;
use crate::outbox::{OutboxAnswer, OutboxRow, OutboxStatus, decide_send};
use crate::priority::MeshPriority;
use crate::ulid::MeshUlid;

fn token(byte: u8) -> LocalToken {
    LocalToken::from_random(&[byte; 32])
}

fn tcp(path: &str) -> IpcHead<'_> {
    IpcHead {
        transport: IpcTransport::Tcp,
        method: "GET",
        path,
        query: "",
        host: Some("127.0.0.1:4000"),
        origin: None,
        authorization: None,
    }
}

/// The caller, or the status and the body.
fn checked(head: &IpcHead<'_>, public_health_check: bool) -> Result<(), (u16, String)> {
    let tokens = [&token(1), &token(2)];
    let policy = IpcPolicy {
        tokens: &tokens,
        origin_allowlist: &["https://app.example".to_owned()],
        public_health_check,
        is_external: false,
    };
    let checked = check_head(head, &policy);
    checked
        .map(|_| ())
        .map_err(|refusal| (refusal.status, refusal.to_body()))
}

fn status(head: &IpcHead<'_>) -> u16 {
    checked(head, false).map_or_else(|(status, _)| status, |()| 200)
}

#[test]
fn the_socket_needs_no_token_and_the_listener_does() {
    let unix = IpcHead {
        transport: IpcTransport::Unix,
        ..tcp("/v1/health")
    };
    assert_eq!(checked(&unix, false), Ok(()));
    let refused = checked(&tcp("/v1/health"), false);
    assert_eq!(
        refused,
        Err((401, r#"{"error":"missing bearer token"}"#.to_owned()))
    );
    let with = |value: &str| {
        status(&IpcHead {
            authorization: Some(value),
            ..tcp("/v1/peers")
        })
    };
    let (current, previous) = (token(1), token(2));
    assert_eq!(with(&format!("Bearer {}", current.reveal())), 200);
    assert_eq!(with(&format!("bearer {}", previous.reveal())), 200);
    assert_eq!(with(&format!("Basic {}", current.reveal())), 401);
    for wrong in ["Bearer x", "Bearer ", "Bearer"] {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    let wrong = IpcHead {
        authorization: Some("Bearer x"),
        ..tcp("/v1/peers")
    };
    assert_eq!(
        checked(&wrong, false),
        Err((401, r#"{"error":"invalid bearer token"}"#.to_owned()))
    );
}

#[test]
fn a_token_in_the_query_is_refused_before_everything_else() {
    for transport in [IpcTransport::Unix, IpcTransport::Tcp] {
        for query in ["token=x", "a=1&token", "%74oken=x"] {
            let head = IpcHead {
                transport,
                query,
                host: Some("evil.example"),
                ..tcp("/none")
            };
            let (status, body) = checked(&head, true).unwrap_err();
            assert_eq!(status, 400);
            assert_eq!(
                body,
                r#"{"error":"token must be in Authorization header, not query string"}"#
            );
        }
    }
    let other = IpcHead {
        transport: IpcTransport::Unix,
        query: "tokens=x",
        ..tcp("/v1/peers")
    };
    assert_eq!(status(&other), 200);
}

#[test]
fn only_names_of_this_machine_pass_as_host() {
    let with = |host: Option<&str>| {
        let head = IpcHead {
            transport: IpcTransport::Unix,
            host,
            ..tcp("/v1/peers")
        };
        status(&head)
    };
    for host in [
        "",
        "localhost",
        "LOCALHOST:80",
        "127.0.0.1",
        "127.0.0.1:4000",
        "[::1]",
        "[::1]:9",
    ] {
        assert_eq!(with(Some(host)), 200, "{host}");
    }
    assert_eq!(with(None), 200);
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "127.0.0.2",
        "[::1].x",
        "::1",
        ":80",
        "localhost:",
    ] {
        assert_eq!(with(Some(host)), 403, "{host}");
    }
    let head = IpcHead {
        host: Some("evil.example"),
        ..tcp("/v1/peers")
    };
    assert_eq!(
        checked(&head, false),
        Err((403, r#"{"error":"forbidden host"}"#.to_owned()))
    );
}

#[test]
fn foreign_origins_and_preflights_are_refused() {
    let with = |origin: &str| {
        status(&IpcHead {
            transport: IpcTransport::Unix,
            origin: Some(origin),
            ..tcp("/v1/peers")
        })
    };
    assert_eq!(with("https://app.example"), 200);
    for origin in ["https://evil.example", "null", "", "http://localhost"] {
        assert_eq!(with(origin), 403, "{origin}");
    }
    let preflight = IpcHead {
        transport: IpcTransport::Unix,
        method: "OPTIONS",
        ..tcp("/v1/peers")
    };
    assert_eq!(
        checked(&preflight, false),
        Err((403, r#"{"error":"forbidden origin"}"#.to_owned()))
    );
}

#[test]
fn the_setting_opens_health_and_nothing_else() {
    assert_eq!(checked(&tcp("/v1/health"), true), Ok(()));
    for path in ["/v1/metrics", "/v1/version", "/v1/health/", "/v1/healthz"] {
        assert!(checked(&tcp(path), true).is_err(), "{path}");
    }
    let post = IpcHead {
        method: "POST",
        ..tcp("/v1/health")
    };
    assert!(checked(&post, true).is_err());
    for path in ["/v1/health", "/v1/metrics", "/v1/version"] {
        assert!(checked(&tcp(path), false).is_err(), "{path}");
    }
}

#[test]
fn tokens_of_hooks_are_recognised_on_every_transport() {
    for transport in [IpcTransport::Unix, IpcTransport::Tcp] {
        let head = IpcHead {
            transport,
            authorization: Some("Capability abc"),
            ..tcp("/v1/send")
        };
        let policy = IpcPolicy {
            tokens: &[],
            origin_allowlist: &[],
            public_health_check: true,
            is_external: false,
        };
        assert_eq!(check_head(&head, &policy), Ok(IpcCaller::Hook("abc")));
    }
}

#[test]
fn tokens_have_43_characters_and_are_not_printed() {
    let own = token(1);
    assert_eq!(own.reveal().len(), 43);
    let read = LocalToken::parse(&format!("{}\n", own.reveal())).unwrap();
    assert!(read.matches(own.reveal()) && !read.matches(token(2).reveal()) && !read.matches(""));
    assert!(LocalToken::parse("short").is_none());
    assert_eq!(format!("{own:?}"), "LocalToken(..)");
    let header = format!("Bearer {}", own.reveal());
    assert_eq!(redacted_authorization(&header), "Bearer ***");
    assert_eq!(redacted_authorization("Secret"), "***");
}

fn slug() -> MeshSlug {
    MeshSlug::parse("mesh-one").unwrap()
}

fn send(body: &Value) -> Result<IpcSend, (u16, String)> {
    let parsed = IpcSend::parse_send(body.to_string().as_bytes(), None, &slug());
    parsed.map_err(|refusal| (refusal.status, refusal.error))
}

fn minted() -> MeshUlid {
    MeshUlid::new(1, 2)
}

#[test]
fn a_request_to_send_is_read_with_its_defaults() {
    let read = send(&json!({"to": "#alerts", "message": "hello"})).unwrap();
    assert_eq!(read.priority, MeshPriority::Next);
    assert!(matches!(read.to, Recipient::Topic(_)));
    assert_eq!(
        (read.reply_to_id.as_deref(), read.meta.to_member()),
        (None, None)
    );
    let topic = Destination::from_parts(DestinationKind::Topic, "alerts").unwrap();
    let v1 = "732ac0065588670239d605eb525efd30389dcb985216d01cad4169dbcaf3dd79";
    assert_eq!(read.fingerprint(&topic).unwrap().to_string(), v1);
    let post = IpcSend::parse_post(
        br#"{"topic":"alerts","message":"hello","mentions":["a"]}"#,
        None,
        &slug(),
    )
    .unwrap();
    assert_eq!(post.fingerprint(&topic).unwrap().to_string(), v1);
    assert_eq!(post.mentions, ["a"]);
    let full = send(&json!({"to": "*", "message": "m", "priority": "low", "meta": {"b": 1, "a": 2}, "reply_to_id": "r",
        "client_message_id": "own", "mesh": "mesh-one", "unknown": 1}))
    .unwrap();
    assert_eq!(full.meta.as_str(), r#"{"a":2,"b":1}"#);
    assert_eq!(full.reply_to_id.as_deref(), Some("r"));
    assert_eq!(full.id(minted).unwrap().as_str(), "own");
}

#[test]
fn cm_039_the_header_is_used_before_the_id_of_the_body() {
    let body = br#"{"to":"*","message":"m","client_message_id":"body"}"#;
    let read = |header| {
        IpcSend::parse_send(body, header, &slug())
            .unwrap()
            .id(minted)
            .unwrap()
    };
    assert_eq!(read(Some("header")).as_str(), "header");
    assert_eq!(read(None).as_str(), "body");
    let minted_id = send(&json!({"to": "*", "message": "m"}))
        .unwrap()
        .id(minted)
        .unwrap();
    assert!(MeshUlid::is_valid(minted_id.as_str()));
}

#[test]
fn cm_049_cm_050_invalid_requests_are_refused_with_their_text() {
    for (body, error) in [
        (json!({"message": "m"}), "missing 'to'"),
        (json!({"to": "", "message": "m"}), "missing 'to'"),
        (json!({"to": null, "message": "m"}), "missing 'to'"),
        (json!({"to": 5, "message": "m"}), "invalid 'to'"),
        (json!({"to": "@a//b", "message": "m"}), "invalid 'to'"),
        (json!({"to": "*"}), "missing 'message'"),
        (json!({"to": "*", "message": ""}), "missing 'message'"),
        (
            json!({"to": "*", "message": "m", "priority": "high"}),
            "invalid_priority",
        ),
        (
            json!({"to": "*", "message": "m", "meta": []}),
            "invalid 'meta'",
        ),
        (
            json!({"to": "*", "message": "m", "client_message_id": "a b"}),
            "invalid_client_message_id",
        ),
        (
            json!({"to": "*", "message": "m", "client_message_id": ""}),
            "invalid_client_message_id",
        ),
        (
            json!({"to": "*", "message": "m", "replyToId": "a\u{0}"}),
            "reply_to_id contains a NUL byte",
        ),
        (
            json!({"to": "*", "message": "m", "replyToId": "a", "reply_to_id": "b"}),
            "replyToId and reply_to_id differ",
        ),
        (
            json!({"to": "*", "message": "m", "mentions": [1]}),
            "invalid 'mentions'",
        ),
        (
            json!({"to": "*", "message": "m", "mentions": vec!["a"; 17]}),
            "invalid 'mentions'",
        ),
    ] {
        assert_eq!(send(&body), Err((400, error.to_owned())), "{body}");
    }
    for meta in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":9007199254740993}"#,
    ] {
        let body = format!(r#"{{"to":"*","message":"m","meta":{meta}}}"#);
        let refusal = IpcSend::parse_send(body.as_bytes(), None, &slug()).unwrap_err();
        assert_eq!(
            (refusal.status, refusal.error.as_str()),
            (400, "meta_not_canonical")
        );
    }
    assert_eq!(
        send(&json!({"to": "*", "message": "m", "mesh": "other"})),
        Err((404, "mesh_not_attached".to_owned()))
    );
}

#[test]
fn bodies_that_are_no_json_or_too_long_are_refused() {
    for body in [&b""[..], b"{", b"[]", b"null", b"\xff"] {
        let refusal = IpcSend::parse_send(body, None, &slug()).unwrap_err();
        assert_eq!(
            (refusal.status, refusal.to_body().as_str()),
            (400, r#"{"error":"invalid_json"}"#)
        );
    }
    let long = format!(
        r#"{{"to":"*","message":"m","x":"{}"}}"#,
        "x".repeat(1 << 20)
    );
    assert_eq!(
        IpcSend::parse_send(long.as_bytes(), None, &slug())
            .unwrap_err()
            .status,
        413
    );
    let message = "m".repeat(crate::limits::INLINE_BYTES_MAX);
    assert!(send(&json!({"to": "*", "message": message})).is_ok());
    assert_eq!(
        send(&json!({"to": "*", "message": format!("{message}m")}))
            .unwrap_err()
            .0,
        413
    );
}

#[test]
fn other_requests_have_their_own_rules() {
    let topic =
        |body: &[u8]| TopicSubscription::parse(body, &slug()).map(|one| one.topic.to_string());
    assert_eq!(topic(br##"{"topic":"#alerts"}"##).unwrap(), "alerts");
    assert_eq!(topic(b"{}").unwrap_err().error, "missing 'topic'");
    assert_eq!(
        topic(br#"{"topic":"a b"}"#).unwrap_err().error,
        "invalid 'topic'"
    );
    let profile = PeerProfileUpdate::parse(br#"{"status":"dnd","visible":false}"#).unwrap();
    assert_eq!(profile.applied(), ["status", "visible"]);
    assert_eq!(PeerProfileUpdate::parse(b"{}").unwrap_err().status, 400);
    assert_eq!(
        PeerProfileUpdate::parse(br#"{"status":"away"}"#)
            .unwrap_err()
            .status,
        400
    );
    assert!(
        !FileShareRequest::parse(br#"{"path":"/a"}"#)
            .unwrap()
            .persistent
    );
    assert!(FileShareRequest::parse(br#"{"path":""}"#).is_err());
    assert!(OutboxRequeue::parse(br#"{"id":"r","new_client_message_id":"n"}"#).is_ok());
    assert!(OutboxRequeue::parse(br#"{"id":"r","new_client_message_id":"a b"}"#).is_err());
    assert!(OutboxRequeue::parse(br#"{"id":""}"#).is_err());
    assert_eq!(OutboxDrop::parse(br#"{"id":"r"}"#).unwrap().id, "r");
    assert!(OutboxPrune::parse(br#"{"confirm":true}"#).is_ok());
    assert!(
        OutboxPrune::parse(br#"{"confirm":false}"#).is_err() && OutboxPrune::parse(b"{}").is_err()
    );
}

#[test]
fn lists_have_limits() {
    let inbox = |query| InboxQuery::parse(query).map_err(|refusal| refusal.error);
    let read = inbox("since=2026-01-01T00%3A00%3A00.250Z&topic=%23a&from=bob&limit=7").unwrap();
    assert_eq!((read.since_ms, read.limit), (Some(1_767_225_600_250), 7));
    assert_eq!(
        (read.topic.as_deref(), read.from.as_deref()),
        (Some("a"), Some("bob"))
    );
    assert_eq!(inbox("").unwrap().limit, 100);
    assert_eq!(inbox("limit=99999999999").unwrap().limit, 1_000);
    assert_eq!(inbox("limit=0"), Err("invalid 'limit'".to_owned()));
    assert_eq!(inbox("since=yesterday"), Err("invalid 'since'".to_owned()));
    let outbox = OutboxQuery::parse("status=dead&limit=501").unwrap();
    assert_eq!(
        (outbox.status, outbox.limit),
        (Some(OutboxStatus::Dead), 500)
    );
    assert_eq!(OutboxQuery::parse("").unwrap().limit, 50);
    assert!(OutboxQuery::parse("status=lost").is_err());
    assert_eq!(
        FileGetQuery::parse("id=f&out=%2Ftmp%2Fx").unwrap().out,
        "/tmp/x"
    );
    assert_eq!(
        FileGetQuery::parse("id=f").unwrap_err().error,
        "missing 'out'"
    );
}

#[test]
fn cm_065_every_conflict_shows_16_digits_of_the_daemons_fingerprint() {
    let id = ClientMessageId::parse("c-1").unwrap();
    for status in OutboxStatus::ALL {
        for byte in [1, 2] {
            let row = OutboxRow {
                status: *status,
                fingerprint: RequestFingerprint::from_bytes([1; 32]),
                broker_message_id: Some("b-1".to_owned()),
                history_id: Some("h-1".to_owned()),
                last_error: Some("max_age_exceeded".to_owned()),
            };
            let decision = decide_send(Some(&row), RequestFingerprint::from_bytes([byte; 32]));
            let answer = answer_send(&decision, &id);
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            let is_conflict = matches!(decision, OutboxAnswer::Conflict(_));
            assert_eq!(answer.status == 409, is_conflict);
            if is_conflict {
                assert_eq!(body["error"], "idempotency_key_reused");
                let prefix = body["daemon_fingerprint_prefix"].as_str().unwrap();
                assert_eq!(prefix, format!("{byte:02}").repeat(8));
                assert!(body.as_object().unwrap().contains_key("broker_message_id"));
            }
        }
    }
}

#[test]
fn accepted_requests_have_the_listed_bodies() {
    let id = ClientMessageId::parse("c-1").unwrap();
    let answered = |decision| {
        let answer = answer_send(&decision, &id);
        (answer.status, answer.body)
    };
    let queued = (
        202,
        r#"{"client_message_id":"c-1","status":"queued"}"#.to_owned(),
    );
    assert_eq!(answered(OutboxAnswer::Enqueue), queued);
    assert_eq!(
        answered(OutboxAnswer::OnItsWay(OutboxStatus::Pending)),
        queued
    );
    let inflight = (
        202,
        r#"{"client_message_id":"c-1","status":"inflight"}"#.to_owned(),
    );
    assert_eq!(
        answered(OutboxAnswer::OnItsWay(OutboxStatus::Inflight)),
        inflight
    );
    let delivered = OutboxAnswer::Delivered {
        broker_message_id: Some("b-1".to_owned()),
        history_id: Some("h-1".to_owned()),
    };
    let body = r#"{"client_message_id":"c-1","broker_message_id":"b-1","history_id":"h-1","duplicate":true}"#;
    assert_eq!(answered(delivered), (200, body.to_owned()));
}

#[test]
fn refusals_without_a_check_have_their_words() {
    let body = IpcRefusal::capability_disabled("vector").to_body();
    assert_eq!(
        body,
        r#"{"error":"capability_disabled","capability":"vector"}"#
    );
    for (refusal, status, error) in [
        (IpcRefusal::not_found(), 404, "not found"),
        (IpcRefusal::rate_limited(), 429, "rate_limited"),
        (IpcRefusal::daemon_busy(), 429, "daemon_busy"),
        (IpcRefusal::too_many_streams(), 429, "too_many_streams"),
        (
            IpcRefusal::insufficient_storage(),
            507,
            "insufficient_storage",
        ),
        (IpcRefusal::capability_scope(), 403, "capability_scope"),
    ] {
        assert_eq!((refusal.status, refusal.error.as_str()), (status, error));
    }
}

#[test]
fn events_have_a_number_a_kind_and_one_line_of_data() {
    let text = sse_event(7, MeshEventKind::OutboxDead, r#"{"ts":1}"#);
    assert_eq!(text, "id: 7\nevent: outbox_dead\ndata: {\"ts\":1}\n\n");
    let split = sse_event(1, MeshEventKind::Message, "a\r\nevent: x");
    assert_eq!(
        split
            .lines()
            .filter(|line| line.starts_with("event: "))
            .count(),
        1
    );
    assert_eq!(sse_comment("keepalive"), ": keepalive\n\n");
}

#[test]
fn a_command_uses_the_daemon_of_its_own_mesh_and_version() {
    let version = |ipc_api: &str, mesh: &str| VersionAnswer {
        daemon_version: "0.9.0".to_owned(),
        ipc_api: ipc_api.to_owned(),
        ipc_minor: 0,
        ipc_features: VersionAnswer::FEATURES
            .iter()
            .map(|&one| one.to_owned())
            .collect(),
        schema_version: 1,
        mesh: mesh.to_owned(),
        broker_features_negotiated: Vec::new(),
        broker_feature_params: serde_json::Map::new(),
        outbox_max_age_hours: Some(72),
    };
    assert!(version("v1", "a").is_usable("a", "send"));
    assert!(!version("v1", "b").is_usable("a", "send"));
    assert!(!version("v2", "a").is_usable("a", "send"));
    assert!(!version("v1", "a").is_usable("a", "vector"));
    let compat = CompatAnswer::new(&["client_message_id_dedupe".to_owned()]);
    assert_eq!(compat.compatible_sdks["go"], ">=0.9.0,<1.0.0");
}

#[test]
fn items_of_lists_have_all_keys_also_without_values() {
    let row = OutboxItem {
        id: "r".to_owned(),
        client_message_id: "c".to_owned(),
        status: OutboxStatus::Dead,
        attempts: 3,
        enqueued_at: "t".to_owned(),
        next_attempt_at: "t".to_owned(),
        delivered_at: None,
        broker_message_id: None,
        last_error: Some("max_age_exceeded".to_owned()),
        aborted_at: None,
        aborted_by: None,
        superseded_by: None,
        destination_kind: Some("intent".to_owned()),
        destination_ref: Some("mail".to_owned()),
        payload_bytes: 5,
        request_fingerprint: "ab".repeat(32),
    };
    let list = IpcItemList {
        items: vec![row],
        next: None,
    };
    let value = serde_json::to_value(&list).unwrap();
    assert_eq!(value["items"][0]["status"], "dead");
    assert_eq!(value["items"][0].as_object().unwrap().len(), 16);
    assert!(value.get("next").is_none());
    let message = InboxItem {
        id: "i".to_owned(),
        client_message_id: "c".to_owned(),
        broker_message_id: None,
        mesh: "m".to_owned(),
        topic: None,
        sender_pubkey: "k".to_owned(),
        sender_name: "n".to_owned(),
        body: Some("secret".to_owned()),
        meta: None,
        received_at: "t".to_owned(),
        reply_to_id: None,
    };
    assert_eq!(
        serde_json::to_value(&message)
            .unwrap()
            .as_object()
            .unwrap()
            .len(),
        11
    );
    assert!(!format!("{message:?}").contains("secret"));
}

#[test]
fn a_listener_for_other_machines_is_named_by_its_address_and_by_no_foreign_name() {
    let at = |host: &'static str, is_external: bool| {
        let head = IpcHead {
            transport: IpcTransport::Unix,
            host: Some(host),
            ..tcp("/v1/health")
        };
        let policy = IpcPolicy {
            tokens: &[],
            origin_allowlist: &[],
            public_health_check: false,
            is_external,
        };
        check_head(&head, &policy).is_ok()
    };
    for host in ["10.0.0.5", "10.0.0.5:4000", "[fd00::1]:4000", "[fd00::1]"] {
        assert!(at(host, true), "{host}");
        assert!(!at(host, false), "{host}");
    }
    for host in [
        "evil.example",
        "10.0.0.5.evil.example",
        "[evil]",
        "fd00::1:x",
    ] {
        assert!(!at(host, true), "{host}");
    }
    assert!(at("localhost:1", true) && at("", true));
}
