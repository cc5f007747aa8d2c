//! The mesh: frames of its WebSocket, and requests to its daemon.

use consign_mesh::accept::{AcceptRefusal, SendKey, check_send};
use consign_mesh::body::CarriedBody;
use consign_mesh::client_message_id::ClientMessageId;
use consign_mesh::config::{DaemonConfig, HooksFile};
use consign_mesh::destination::{Destination, Recipient, ResolvedTarget, TargetSpec};
use consign_mesh::features::{FeatureNeeds, negotiate};
use consign_mesh::fingerprint::BodyHash;
use consign_mesh::frame::{BrokerFrame, ClientFrame, FeatureResponse, RawJson, SendFrame};
use consign_mesh::hello::{check_hello, check_session_hello};
use consign_mesh::http::{JoinRequest, MessagePost};
use consign_mesh::id::{MeshSlug, TopicName};
use consign_mesh::ipc::{
    FileGetQuery, FileListQuery, FileShareRequest, InboxQuery, IpcCaller, IpcHead, IpcPolicy,
    IpcPublish, IpcSend, IpcTransport, LocalToken, OutboxDrop, OutboxPrune, OutboxQuery,
    OutboxRequeue, PeerProfileUpdate, StateUpdate, TopicSubscription, check_head,
};
use consign_mesh::limits;
use consign_mesh::max_age::DedupeWindow;
use consign_mesh::outbox::{AckOutcome, ack_outcome};
use consign_mesh::ulid::MeshUlid;

const NOW_MS: u64 = 1_700_000_000_000;

/// The target `mesh_frame`. Input: a text.
pub(crate) fn frame(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(framed) = ClientFrame::parse(text) {
        let written = framed.frame.to_text(framed.req_id.as_deref());
        if written.len() <= limits::FRAME_BYTES_MAX {
            let again = ClientFrame::parse(&written).expect("a written frame is a frame");
            assert_eq!(again, framed, "{written}");
        }
        from_client(&framed.frame);
    }
    if let Ok(framed) = BrokerFrame::parse(text) {
        let written = framed.frame.to_text(framed.req_id.as_deref());
        if written.len() <= limits::FRAME_BYTES_MAX {
            let again = BrokerFrame::parse(&written).expect("a written frame is a frame");
            assert_eq!(again, framed, "{written}");
        }
        from_broker(&framed.frame);
    }
}

fn from_client(frame: &ClientFrame) {
    if let ClientFrame::Send(send) = frame {
        accepted(send);
    }
    // No generated text has a valid signature, and nothing else lets a stranger in.
    if let ClientFrame::Hello(hello) = frame {
        assert!(check_hello(hello, NOW_MS, 0).is_err());
    }
    if let ClientFrame::SessionHello(hello) = frame {
        assert!(check_session_hello(hello, NOW_MS, 0).is_err());
    }
}

fn from_broker(frame: &BrokerFrame) {
    if let BrokerFrame::Ack(ack) = frame
        && let AckOutcome::Dead { error, .. } | AckOutcome::Retry(error) = ack_outcome(ack)
    {
        assert_eq!(ack.error.as_deref().unwrap_or("refused"), error);
    }
    if let BrokerFrame::FeatureResponse(response) = frame {
        negotiated(response);
    }
}

fn negotiated(response: &FeatureResponse) {
    let needs = FeatureNeeds::default();
    match negotiate(&needs, response) {
        Ok(negotiated) => {
            let has = |name: &String| negotiated.features.contains(name);
            assert!(needs.require.iter().all(has));
            let window = negotiated.dedupe_window;
            assert!(matches!(
                window,
                Some(DedupeWindow::Permanent | DedupeWindow::Days(3..))
            ));
        }
        Err(failure) => {
            let reason = failure.reason().to_text();
            assert!(reason.len() <= limits::CLOSE_REASON_BYTES_MAX);
            assert!((4010..=4012).contains(&failure.code.code()));
        }
    }
}

/// The id and the fingerprint of a message whose target exists; `None` if its members are invalid.
fn keyed(send: &SendFrame) -> Option<Result<SendKey, AcceptRefusal>> {
    let checked = check_send(send).ok()?;
    let target = match &checked.target {
        TargetSpec::Key(key) => ResolvedTarget::Member(*key),
        TargetSpec::Group(name) => ResolvedTarget::Group(name.clone()),
        TargetSpec::Topic(topic) => ResolvedTarget::Topic(TopicName::parse(topic).ok()?),
        TargetSpec::Everyone => ResolvedTarget::Everyone,
        TargetSpec::Queue(name) => ResolvedTarget::Queue(name.clone()),
    };
    Some(checked.key(&target))
}

/// A claimed fingerprint is the computed one, and a refusal names its reason.
fn accepted(send: &SendFrame) {
    match keyed(send) {
        Some(Ok(SendKey::Unkeyed)) => assert!(send.client_message_id.is_none()),
        Some(Ok(SendKey::Keyed { id, fingerprint })) => {
            let sent = send.client_message_id.as_deref().unwrap_or_default();
            assert_eq!(sent.trim(), id.as_str());
            if let Some(claimed) = &send.request_fingerprint {
                assert_eq!(claimed.to_lowercase(), fingerprint.to_string());
            }
        }
        Some(Err(refusal)) => {
            let ack = refusal.to_ack(send.id.as_deref(), None);
            assert!(!ack.queued && ack.message_id.is_empty() && ack.id == send.id);
            let word = refusal.reason.as_str();
            assert!(ack.error.is_some_and(|error| error.starts_with(word)));
        }
        None => {}
    }
}

/// The target `mesh_ipc`. Input: a query or a header on the first line, a body after it.
pub(crate) fn ipc(bytes: &[u8]) {
    let at = bytes.iter().position(|byte| *byte == b'\n');
    let (line, body) = bytes.split_at(at.unwrap_or_default());
    let body = body.strip_prefix(b"\n").unwrap_or(body);
    let line = String::from_utf8_lossy(line);
    let slug = MeshSlug::parse("mesh-one").expect("a slug");
    let header = (!line.is_empty()).then_some(&*line);
    for sent in [
        IpcSend::parse_send(body, header, &slug),
        IpcSend::parse_post(body, header, &slug),
    ] {
        match sent {
            Ok(send) => sent_reads_again(&send),
            Err(refusal) => {
                assert!(matches!(refusal.status, 400 | 404 | 413), "{refusal}");
                assert!(serde_json::from_str::<serde_json::Value>(&refusal.to_body()).is_ok());
            }
        }
    }
    let _ = TopicSubscription::parse(body, &slug);
    let _ = PeerProfileUpdate::parse(body);
    let _ = FileShareRequest::parse(body);
    let _ = OutboxRequeue::parse(body);
    let _ = OutboxDrop::parse(body);
    if let Ok(prune) = OutboxPrune::parse(body) {
        assert!(prune.confirm);
    }
    if let Ok(post) = MessagePost::parse(body, header) {
        assert_eq!(
            post.send.destination_ref,
            Some(post.destination.reference())
        );
    }
    let _ = JoinRequest::parse(body);
    let _ = StateUpdate::parse(body);
    publishes(body, header, &slug);
    settings(&String::from_utf8_lossy(body));
    lists(&line);
    guard(&line);
}

/// What the daemon would store is read again when it is sent.
fn publishes(body: &[u8], header: Option<&str>, slug: &MeshSlug) {
    match IpcPublish::parse(body, header, slug) {
        Ok(publish) => {
            let id = publish.id(|| MeshUlid::new(1, 2)).expect("ids are checked");
            assert_eq!(ClientMessageId::parse(id.as_str()).as_ref(), Ok(&id));
        }
        Err(refusal) => assert!((400..500).contains(&refusal.status), "{refusal}"),
    }
}

/// Settings are read from files that an operator or a package wrote.
fn settings(text: &str) {
    if let Ok(config) = DaemonConfig::parse(text) {
        for joined in [0, 1, usize::MAX] {
            let _ = config.disk_limit(joined);
        }
        let _ = (config.needs(), config.max_age());
    }
    if let Ok(file) = HooksFile::parse(text) {
        for (name, hook) in &file.0 {
            assert_eq!(file.enabled(name).is_some(), hook.enabled);
        }
    }
}

fn sent_reads_again(send: &IpcSend) {
    assert!(!send.message.is_empty() && send.message.len() <= limits::INLINE_BYTES_MAX);
    let id = send.id(|| MeshUlid::new(1, 2)).expect("ids are checked");
    assert_eq!(ClientMessageId::parse(id.as_str()).as_ref(), Ok(&id));
    let Ok(destination) = send.to.clone().resolve(&[]) else {
        assert!(send.to.needs_peers());
        return;
    };
    let read = Destination::from_parts(destination.kind(), &destination.reference());
    assert_eq!(read.as_ref(), Ok(&destination));
    let target = destination.target().to_string();
    assert_eq!(TargetSpec::parse(&target), Some(destination.target()));
    assert!(Recipient::parse(&target).is_some());
    let claimed = send
        .fingerprint(&destination)
        .expect("no part has a zero byte");
    // The broker computes the same from the frame that the daemon sends.
    let frame = SendFrame {
        target_spec: target,
        priority: Some(send.priority.as_str().to_owned()),
        ciphertext: CarriedBody::clear(send.message.as_bytes()).ciphertext,
        reply_to_id: send.reply_to_id.clone(),
        client_message_id: Some(id.to_string()),
        request_fingerprint: Some(claimed.to_string()),
        destination_kind: Some(destination.kind().as_str().to_owned()),
        destination_ref: Some(destination.reference()),
        meta: send.meta.to_member().and_then(RawJson::parse),
        body_sha256: Some(BodyHash::of(send.message.as_bytes()).to_string()),
        ..SendFrame::default()
    };
    let Some(Ok(SendKey::Keyed { fingerprint, .. })) = keyed(&frame) else {
        panic!("the broker refuses what the daemon accepted");
    };
    assert_eq!(fingerprint, claimed);
}

fn lists(query: &str) {
    if let Ok(inbox) = InboxQuery::parse(query) {
        assert!((1..=limits::INBOX_PAGE_MAX).contains(&inbox.limit));
    }
    if let Ok(outbox) = OutboxQuery::parse(query) {
        assert!((1..=limits::OUTBOX_PAGE_MAX).contains(&outbox.limit));
    }
    if let Ok(files) = FileListQuery::parse(query) {
        assert!((1..=limits::FILE_PAGE_MAX).contains(&files.limit));
    }
    if let Ok(file) = FileGetQuery::parse(query) {
        assert!(!file.id.is_empty() && !file.out.is_empty());
    }
}

/// No header opens the listener but the token.
fn guard(line: &str) {
    let token = LocalToken::from_random(&[7; 32]);
    let policy = IpcPolicy {
        is_external: false,
        tokens: &[&token],
        origin_allowlist: &[],
        public_health_check: false,
    };
    let head = IpcHead {
        transport: IpcTransport::Tcp,
        method: "GET",
        path: "/v1/peers",
        query: "",
        host: Some("localhost"),
        origin: None,
        authorization: None,
    };
    for other in [
        IpcHead {
            query: line,
            ..head
        },
        IpcHead {
            host: Some(line),
            ..head
        },
        IpcHead {
            origin: Some(line),
            ..head
        },
        IpcHead { path: line, ..head },
    ] {
        assert!(check_head(&other, &policy).is_err());
    }
    let named = IpcHead {
        authorization: Some(line),
        ..head
    };
    let passes = matches!(check_head(&named, &policy), Ok(IpcCaller::User));
    assert!(!passes || line.contains(token.reveal()));
}
