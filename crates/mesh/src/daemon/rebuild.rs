//! Fills the inbox with the posts of the daemon's topics, after `daemon recover --way rebuild`.
//!
//! Invariant: the request for it is removed only when every topic was read, and a message that is in the inbox already stays as
//! it is; so a rebuild that was interrupted is repeated. Nothing is announced and no hook runs: the messages are old. Direct
//! messages are not in any history, and stay lost.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;

use super::inbound;
use super::line::{BrokerLine, LineError};
use super::private_file;
use super::recover::REBUILD_FILE;
use super::shared::{DaemonShared, LinkState, wall_ms};
use crate::frame::{BrokerFrame, ClientFrame, PushFrame, TopicHistory, TopicHistoryEntry};
use crate::id::TopicRef;

/// Posts of one question. An answer that is longer than a frame is not read; then less is asked for.
const PAGES: [u32; 3] = [50, 8, 1];
/// Posts of one topic. Older ones are not read.
const POSTS_MAX: usize = 10_000;
const DAY_MS: i64 = 24 * 3_600_000;

/// Waits for a connection and reads the topics, if an operator asked for it.
pub(super) async fn rebuild(shared: Arc<DaemonShared>) {
    let request = shared.folder.path().join(REBUILD_FILE);
    if !request.exists() {
        return;
    }
    loop {
        let Some(line) = open_line(&shared).await else {
            return;
        };
        match read_topics(&shared, &line).await {
            Ok(restored) => {
                shared
                    .log
                    .info("inbox_rebuilt", &json!({"restored": restored}));
                if let Err(error) = private_file::remove(&request) {
                    let fields = json!({"error": error.to_string()});
                    shared.log.error("inbox_rebuild_failed", &fields);
                }
                return;
            }
            Err(RebuildError::Line(error)) => {
                let fields = json!({"error": error.to_string()});
                shared.log.warn("inbox_rebuild_interrupted", &fields);
                tokio::select! {
                    () = line.until_closed() => {}
                    _ = shared.until_end() => return,
                }
            }
            Err(RebuildError::Store(error)) => {
                let fields = json!({"error": error});
                shared.log.error("inbox_rebuild_failed", &fields);
                return;
            }
        }
    }
}

enum RebuildError {
    /// The next connection goes on.
    Line(LineError),
    /// The next start goes on.
    Store(String),
}

/// `None` when the daemon ends.
async fn open_line(shared: &DaemonShared) -> Option<Arc<BrokerLine>> {
    let mut states = shared.line.subscribe();
    tokio::select! {
        state = states.wait_for(|state| matches!(state, LinkState::Open(_))) => {
            match &*state.ok()? {
                LinkState::Open(line) => Some(Arc::clone(line)),
                LinkState::Connecting | LinkState::Closed => None,
            }
        }
        _ = shared.until_end() => None,
    }
}

async fn read_topics(shared: &Arc<DaemonShared>, line: &BrokerLine) -> Result<u64, RebuildError> {
    let mut restored = 0;
    for topic in shared.topics.subscribed() {
        match read_topic(shared, line, &topic).await {
            Ok(count) => restored += count,
            Err(RebuildError::Line(LineError::Refused(error))) => {
                // The topic is gone, or the daemon is no longer in it.
                let fields = json!({"topic": topic, "error": error.code});
                shared.log.warn("inbox_rebuild_topic_refused", &fields);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(restored)
}

async fn read_topic(
    shared: &Arc<DaemonShared>,
    line: &BrokerLine,
    topic: &str,
) -> Result<u64, RebuildError> {
    let Ok(reference) = TopicRef::parse(topic) else {
        return Ok(0);
    };
    let days = i64::from(shared.config().inbox.retention_days);
    let oldest = wall_ms() - days * DAY_MS;
    let (mut before_id, mut read, mut restored) = (None, 0, 0);
    let mut sizes = PAGES.iter().peekable();
    while read < POSTS_MAX {
        let question = TopicHistory {
            topic: reference.clone(),
            limit: sizes.peek().copied().copied(),
            before_id: before_id.clone(),
        };
        let page = match line.ask(ClientFrame::from(question)).await {
            Ok(BrokerFrame::TopicHistory(page)) => page,
            Err(LineError::NoAnswer) if sizes.len() > 1 => {
                sizes.next();
                continue;
            }
            Ok(_) => return Err(RebuildError::Line(LineError::NoAnswer)),
            Err(error) => return Err(RebuildError::Line(error)),
        };
        // The latest post is first.
        let last = page.messages.last();
        before_id = last.map(|post| post.id.clone());
        let is_over = last.is_none_or(|post| posted_at(post) < oldest);
        read += page.messages.len();
        let kept = page.messages.into_iter();
        let kept = kept.filter(|post| posted_at(post) >= oldest).collect();
        restored += store(shared, topic, kept).await?;
        if is_over {
            break;
        }
    }
    Ok(restored)
}

async fn store(
    shared: &Arc<DaemonShared>,
    topic: &str,
    posts: Vec<TopicHistoryEntry>,
) -> Result<u64, RebuildError> {
    // Ids grow, and order the messages of one millisecond.
    let messages: Vec<_> = posts
        .into_iter()
        .rev()
        .map(|post| {
            let received_at = posted_at(&post);
            let mut message = inbound::opened(shared, &as_push(shared, topic, post));
            message.received_at = received_at;
            message
        })
        .collect();
    let inbox = Arc::clone(&shared.inbox);
    let stored = tokio::task::spawn_blocking(move || {
        inbox.in_one_commit(|commit| {
            let mut restored = 0;
            for message in messages {
                restored += u64::from(commit.insert(&message)?);
            }
            Ok(restored)
        })
    });
    match stored.await {
        Ok(Ok(restored)) => Ok(restored),
        Ok(Err(error)) => Err(RebuildError::Store(error.to_string())),
        Err(error) => Err(RebuildError::Store(error.to_string())),
    }
}

/// The post as the broker pushed it, as far as its history knows.
fn as_push(shared: &DaemonShared, topic: &str, post: TopicHistoryEntry) -> PushFrame {
    PushFrame {
        message_id: post.id,
        mesh_id: shared.mesh_id.clone(),
        sender_member_pubkey: Some(post.sender_pubkey.clone()),
        sender_pubkey: post.sender_pubkey,
        sender_member_id: Some(post.sender_member_id),
        sender_name: Some(post.sender_name),
        topic: Some(topic.to_owned()),
        reply_to_id: post.reply_to_id,
        priority: crate::priority::MeshPriority::default().as_str().to_owned(),
        nonce: post.nonce,
        ciphertext: post.ciphertext,
        created_at: post.created_at,
        body_version: Some(post.body_version),
        client_message_id: None,
        request_fingerprint: None,
        meta: None,
        subtype: None,
        event: None,
        event_data: None,
    }
}

/// A post whose time cannot be read counts as new.
fn posted_at(post: &TopicHistoryEntry) -> i64 {
    let at = post.created_at.parse::<Timestamp>();
    at.map_or_else(|_| wall_ms(), Timestamp::as_millisecond)
}
