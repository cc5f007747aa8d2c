//! Frames are read, written and read again; what is malformed keeps its ids.

use serde_json::{Value, json};

use super::*;

/// Reads a frame of a client and demands that the written text has the same members.
fn client(value: &Value) -> ClientFrame {
    let framed = ClientFrame::parse(&value.to_string()).unwrap();
    let written = framed.frame.to_text(framed.req_id.as_deref());
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), *value);
    assert_eq!(ClientFrame::parse(&written).unwrap(), framed);
    framed.frame
}

fn broker(value: &Value) -> BrokerFrame {
    let framed = BrokerFrame::parse(&value.to_string()).unwrap();
    let written = framed.frame.to_text(framed.req_id.as_deref());
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), *value);
    assert_eq!(BrokerFrame::parse(&written).unwrap(), framed);
    framed.frame
}

#[test]
fn every_frame_of_a_client_reads_back() {
    let frames = [
        json!({"type": "hello", "protocolVersion": 1, "capabilities": ["a"], "meshId": "m", "memberId": "a", "pubkey": "k",
            "sessionPubkey": "s", "displayName": "d", "sessionId": "i", "pid": 7, "cwd": "/", "hostname": "h",
            "peerType": "ai", "channel": "c", "model": "x", "groups": [{"name": "g", "role": "r"}], "hostFingerprint": "h",
            "timestamp": 5, "signature": "f"}),
        json!({"type": "session_hello", "meshId": "m", "parentMemberId": "a", "parentMemberPubkey": "k", "sessionPubkey": "s",
            "parentAttestation": {"sessionPubkey": "s", "parentMemberPubkey": "k", "expiresAt": 9, "signature": "f"},
            "displayName": "d", "sessionId": "i", "pid": 7, "cwd": "/", "hostname": "h", "groups": [], "timestamp": 5,
            "signature": "f"}),
        json!({"type": "feature_negotiation_request", "require": ["a"], "optional": [], "_reqId": "r"}),
        json!({"type": "member_keypair_rotate", "new_pubkey": "n", "new_x25519_pubkey": "x", "key_id": "k_1", "timestamp": 5,
            "signature_old": "o", "signature_new": "n"}),
        json!({"type": "send", "id": "1", "targetSpec": "*", "priority": "now", "nonce": "", "ciphertext": "aGk=",
            "mentions": ["a"], "replyToId": "r", "bodyVersion": 1, "client_message_id": "c", "request_fingerprint": "f",
            "envelope_version": 1, "destination_kind": "queue", "destination_ref": "*", "reply_to_id": "r",
            "meta": {"z": 1, "a": 1e21}, "body_sha256": "b"}),
        json!({"type": "client_ack", "clientMessageId": "c", "brokerMessageId": "b"}),
        json!({"type": "message_status", "messageId": "m", "_reqId": "7"}),
        json!({"type": "list_peers", "_reqId": "8"}),
        json!({"type": "set_status", "status": "dnd"}),
        json!({"type": "set_summary", "summary": ""}),
        json!({"type": "set_visible", "visible": false}),
        json!({"type": "set_profile", "avatar": "a", "title": "t", "bio": "b", "capabilities": ["c"]}),
        json!({"type": "set_stats", "stats": {"turns": 1}}),
        json!({"type": "join_group", "name": "a/b", "role": "r"}),
        json!({"type": "leave_group", "name": "a/b"}),
        json!({"type": "topic_create", "name": "t", "description": "d", "visibility": "private"}),
        json!({"type": "topic_list"}),
        json!({"type": "topic_join", "topic": "t", "role": "observer"}),
        json!({"type": "topic_leave", "topic": "t"}),
        json!({"type": "topic_members", "topic": "t"}),
        json!({"type": "topic_history", "topic": "t", "limit": 5, "beforeId": "b"}),
        json!({"type": "topic_mark_read", "topic": "t"}),
        json!({"type": "set_state", "key": "k", "value": [1]}),
        json!({"type": "get_state", "key": "k"}),
        json!({"type": "list_state"}),
        json!({"type": "set_grants", "member": "ab".repeat(32), "grants": ["dm", "state-read"]}),
        json!({"type": "list_grants"}),
    ];
    let kinds: Vec<String> = frames
        .iter()
        .map(|frame| client(frame).kind().to_owned())
        .collect();
    assert_eq!(kinds, ClientFrame::KINDS);
}

#[test]
fn every_frame_of_the_broker_reads_back() {
    let frames = [
        json!({"type": "hello_ack", "presenceId": "p", "memberDisplayName": "d", "memberProfile": {"roleTag": null,
            "groups": [], "messageMode": "push"}, "meshPolicy": {}, "restored": true, "lastSummary": "s", "lastSeenAt": "t",
            "restoredGroups": [{"name": "g"}], "restoredStats": {}, "services": [], "brokerVersion": "1"}),
        json!({"type": "feature_negotiation_response", "supported": {"key_epoch": {"params": {"version": 1}}},
            "missing_required": [], "_reqId": "r"}),
        json!({"type": "ack", "id": "1", "messageId": "m", "queued": true, "error": "e", "code": 201, "broker_message_id": "m",
            "client_message_id": "c", "history_id": "h", "duplicate": false, "history_available": true, "first_seen_at": "t",
            "destination_kind": "dm", "destination_ref": "k", "conflict": "x", "broker_fingerprint_prefix": "f"}),
        json!({"type": "push", "messageId": "m", "meshId": "i", "senderPubkey": "s", "senderMemberPubkey": "k",
            "senderMemberId": "a", "senderName": "n", "topic": "t", "replyToId": "r", "priority": "now", "nonce": "",
            "ciphertext": "aGk=", "createdAt": "t", "bodyVersion": 2, "client_message_id": "c", "request_fingerprint": "f",
            "meta": {"a": 1}, "subtype": "system", "event": "peer_joined", "eventData": {"name": "n"}}),
        json!({"type": "error", "code": "no_hello", "message": "must send hello first", "id": "1"}),
        json!({"type": "message_status_result", "messageId": "m", "targetSpec": "*", "delivered": true, "deliveredAt": "t",
            "recipients": [{"a": 1}]}),
        json!({"type": "peers_list", "_reqId": "r", "peers": [{"pubkey": "p", "memberPubkey": "m", "displayName": "d",
            "status": "idle", "summary": null, "groups": [], "sessionId": "s", "connectedAt": "t", "cwd": "/",
            "peerRole": "service", "hostname": "h", "peerType": "ai", "channel": "c", "model": "m", "stats": {}, "visible": true,
            "profile": {}}]}),
        json!({"type": "topic_created", "topic": {"id": "i", "name": "t", "visibility": "public"}, "created": true}),
        json!({"type": "topic_list_response", "topics": [{"id": "i", "name": "t", "description": null, "visibility": "dm",
            "memberCount": 2, "createdAt": "t"}]}),
        json!({"type": "topic_members_response", "topic": "t", "members": [{"memberId": "m", "pubkey": "k", "displayName": "d",
            "role": "lead", "joinedAt": "t", "lastReadAt": null}]}),
        json!({"type": "topic_history_response", "topic": "t", "messages": [{"id": "i", "senderPubkey": "s",
            "senderMemberId": "m", "senderName": "n", "nonce": "", "ciphertext": "", "bodyVersion": 1, "replyToId": "r",
            "createdAt": "t"}]}),
        json!({"type": "state_change", "key": "k", "value": null, "updatedBy": "m"}),
        json!({"type": "state_result", "key": "k", "value": 1, "updatedAt": "t", "updatedBy": "m"}),
        json!({"type": "state_list", "entries": [{"key": "k", "value": 1, "updatedAt": "t", "updatedBy": "m"}]}),
        json!({"type": "grants_list", "grants": {"ab".repeat(32): ["dm"], "cd".repeat(32): []}}),
    ];
    let kinds: Vec<String> = frames
        .iter()
        .map(|frame| broker(frame).kind().to_owned())
        .collect();
    assert_eq!(kinds, BrokerFrame::KINDS);
}

#[test]
fn a_hello_needs_neither_cwd_nor_pid() {
    let text = r#"{"type":"hello","meshId":"m","memberId":"a","pubkey":"k","sessionId":"s","timestamp":1,"signature":"f"}"#;
    let ClientFrame::Hello(hello) = ClientFrame::parse(text).unwrap().frame else {
        panic!("a hello");
    };
    assert_eq!((hello.cwd, hello.pid), (None, None));
}

#[test]
fn meta_is_carried_with_its_own_tokens() {
    let text =
        r#"{"type":"send","targetSpec":"*","ciphertext":"","meta":{"b":1.0, "a":1e2,"a":2}}"#;
    let ClientFrame::Send(send) = ClientFrame::parse(text).unwrap().frame else {
        panic!("a send");
    };
    let meta = send.meta.as_ref().unwrap().text().to_owned();
    assert_eq!(meta, r#"{"b":1.0, "a":1e2,"a":2}"#);
    let written = ClientFrame::Send(send).to_text(None);
    assert!(written.contains(&meta), "{written}");
}

#[test]
fn the_type_comes_first_and_unknown_members_are_ignored() {
    let text = r#"{"new":[1],"_reqId":"r","type":"get_state","key":"k"}"#;
    let framed = ClientFrame::parse(text).unwrap();
    assert_eq!(
        framed.frame.to_text(Some("r")),
        r#"{"type":"get_state","key":"k","_reqId":"r"}"#
    );
    let unknown = ClientFrame::parse(r#"{"type":"vault_get","key":"k"}"#).unwrap();
    assert_eq!(unknown.frame, ClientFrame::Unknown("vault_get".to_owned()));
}

#[test]
fn a_malformed_send_keeps_the_ids_of_its_answer() {
    let text = r#"{"type":"send","id":"7","_reqId":"r","targetSpec":5,"ciphertext":""}"#;
    let Err(MeshFrameError::Malformed {
        kind, id, req_id, ..
    }) = ClientFrame::parse(text)
    else {
        panic!("malformed");
    };
    assert_eq!(
        (kind.as_str(), id.as_deref(), req_id.as_deref()),
        ("send", Some("7"), Some("r"))
    );
}

#[test]
fn what_is_no_object_with_a_type_is_no_frame() {
    for text in [
        "",
        "1",
        "[]",
        "null",
        "{",
        r#"{"type":1}"#,
        r#"{"kind":"hello"}"#,
    ] {
        assert!(ClientFrame::parse(text).is_err(), "{text}");
    }
    let nested = format!(r#"{{"type":"x","a":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    assert!(matches!(
        ClientFrame::parse(&nested),
        Err(MeshFrameError::NotAnObject(_))
    ));
    let long = format!(r#"{{"type":"x","a":"{}"}}"#, "a".repeat(FRAME_BYTES_MAX));
    assert_eq!(
        ClientFrame::parse(&long),
        Err(MeshFrameError::TooLong(FRAME_BYTES_MAX))
    );
}

#[test]
fn limits_of_single_members_hold() {
    for text in [
        r#"{"type":"join_group","name":"a//b"}"#.to_owned(),
        r#"{"type":"set_status","status":"away"}"#.to_owned(),
        r#"{"type":"topic_join","topic":""}"#.to_owned(),
        r#"{"type":"topic_create","name":"a b"}"#.to_owned(),
        format!(
            r#"{{"type":"set_summary","summary":"{}"}}"#,
            "s".repeat(1_001)
        ),
    ] {
        assert!(
            matches!(
                ClientFrame::parse(&text),
                Err(MeshFrameError::Malformed { .. })
            ),
            "{text}"
        );
    }
}

#[test]
fn bodies_are_not_printed() {
    let send = SendFrame {
        target_spec: "*".to_owned(),
        ciphertext: "c2VjcmV0".to_owned(),
        ..SendFrame::default()
    };
    assert!(!format!("{send:?}").contains("c2Vjc"));
}

#[test]
fn the_inbox_uses_the_senders_id_if_there_is_one() {
    let mut push = PushFrame::system("m", "broker-id", "t", "peer_left", None);
    assert_eq!(push.inbox_key(), "broker-id");
    push.client_message_id = Some("own-id".to_owned());
    assert_eq!(push.inbox_key(), "own-id");
}

#[test]
fn a_push_that_cannot_be_read_is_acknowledged_by_its_ids() {
    let unread = r#"{"type":"push","messageId":"b-1","client_message_id":"c-1","priority":7,"of":{"the":"future"}}"#;
    assert!(BrokerFrame::parse(unread).is_err());
    let ack = ClientAck::of_unread(unread).unwrap();
    assert_eq!(ack.broker_message_id.as_deref(), Some("b-1"));
    assert_eq!(ack.client_message_id.as_deref(), Some("c-1"));
    for other in [
        r#"{"type":"push","priority":7}"#,
        r#"{"type":"ack","messageId":"b-1"}"#,
        r#"{"type":"push","messageId":"b-1""#,
    ] {
        assert_eq!(ClientAck::of_unread(other), None, "{other}");
    }
}

#[test]
fn the_longest_body_fits_one_frame_beside_the_longest_id() {
    let text = |length: usize| Some("i".repeat(length));
    let sealed = vec![0; crate::limits::INLINE_BYTES_MAX + crate::nacl::MAC_BYTES];
    let body = crate::body::CarriedBody::clear(&sealed);
    let send = SendFrame {
        id: text(26),
        target_spec: "k".repeat(64),
        priority: text(4),
        nonce: "n".repeat(32),
        ciphertext: body.ciphertext,
        mentions: None,
        reply_to_id: text(36),
        body_version: Some(2),
        client_message_id: text(128),
        request_fingerprint: text(64),
        envelope_version: Some(1),
        destination_kind: text(5),
        destination_ref: text(64),
        hashed_reply_to_id: text(36),
        meta: None,
        body_sha256: text(64),
    };
    let written = ClientFrame::from(send.clone()).to_text(None);
    assert!(fits(&written), "{}", written.len());
    let pushed = BrokerFrame::from(PushFrame::longest(&send, &"m".repeat(32), &"a".repeat(32)));
    let pushed = pushed.to_text(None);
    assert!(fits(&pushed), "{}", pushed.len());
    let mentions = Some(vec!["k".repeat(64); 16]);
    let with_mentions = ClientFrame::from(SendFrame { mentions, ..send });
    assert!(!fits(&with_mentions.to_text(None)));
}

/// Characters that are as long as possible in JSON.
fn escaped(length: usize) -> String {
    "\u{1}".repeat(length)
}

#[test]
fn lists_of_all_that_a_mesh_may_have_are_frames_that_daemons_read() {
    use crate::limits::{
        CONNECTIONS_PER_MESH_MAX, PROFILE_BYTES_MAX, STATE_KEYS_MAX, STATE_VALUE_BYTES_MAX,
        STATS_BYTES_MAX, TOPICS_PER_MESH_MAX,
    };
    let value = |bytes: usize| RawJson::parse(&json!("v".repeat(bytes - 2)).to_string()).unwrap();
    let (time, key) = ("t".repeat(24), "k".repeat(64));
    let state = StateEntry {
        key: "\"".repeat(256),
        value: value(STATE_VALUE_BYTES_MAX),
        updated_at: time.clone(),
        updated_by: key.clone(),
    };
    let topic = TopicEntry {
        id: "i".repeat(32),
        name: "\u{10ffff}".repeat(64),
        description: Some(escaped(1_000)),
        visibility: crate::role::TopicVisibility::Private,
        member_count: u64::MAX,
        created_at: time.clone(),
    };
    let peer = PeerEntry {
        pubkey: key.clone(),
        member_pubkey: Some(key),
        display_name: "\u{10ffff}".repeat(64),
        status: crate::priority::PeerStatus::default(),
        summary: Some(escaped(1_000)),
        groups: vec![
            GroupEntry {
                name: "g".repeat(64),
                role: Some("r".repeat(256)),
            };
            64
        ],
        session_id: "s".repeat(256),
        connected_at: time,
        cwd: "c".repeat(256),
        peer_role: None,
        hostname: Some("h".repeat(256)),
        peer_type: None,
        channel: None,
        model: None,
        stats: Some(value(STATS_BYTES_MAX)),
        visible: Some(true),
        profile: Some(value(PROFILE_BYTES_MAX)),
    };
    let state = vec![state; STATE_KEYS_MAX as usize];
    let frames: [BrokerFrame; 3] = [
        StateList { entries: state }.into(),
        TopicListResponse {
            topics: vec![topic; TOPICS_PER_MESH_MAX],
        }
        .into(),
        PeersList {
            peers: vec![peer; 2 * CONNECTIONS_PER_MESH_MAX],
            ..PeersList::default()
        }
        .into(),
    ];
    for frame in frames {
        let text = frame.to_text(Some("q-1"));
        assert!(text.len() > 1 << 20, "{}", text.len());
        assert_eq!(BrokerFrame::parse(&text).map(|read| read.frame), Ok(frame));
    }
}
