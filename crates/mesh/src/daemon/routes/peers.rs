//! What only the broker knows: peers, topics, and what peers see of this daemon.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{LocalRequest, RouteAnswer};
use crate::daemon::line::{BrokerLine, LineError};
use crate::daemon::shared::DaemonShared;
use crate::daemon::topics::SubscribeError;
use crate::frame::{ClientFrame, SetStatus, SetSummary, SetVisible};
use crate::id::SummaryText;
use crate::ipc::{IpcRefusal, PeerProfileUpdate, TopicItem, TopicSubscription};
use crate::query::QueryPairs;

pub(super) fn line(shared: &DaemonShared) -> Result<Arc<BrokerLine>, IpcRefusal> {
    shared.line().ok_or_else(IpcRefusal::broker_unreachable)
}

pub(super) fn failed(error: &LineError) -> IpcRefusal {
    match error {
        LineError::Closed => IpcRefusal::broker_unreachable(),
        LineError::NoAnswer => IpcRefusal::new(504, "broker_timeout"),
        LineError::Refused(refusal) if refusal.code.contains("not_found") => {
            IpcRefusal::new(404, refusal.code.clone())
        }
        LineError::Refused(refusal) if refusal.code.contains("forbidden") => {
            IpcRefusal::new(403, refusal.code.clone())
        }
        LineError::Refused(refusal) => IpcRefusal::new(400, refusal.code.clone()),
    }
}

pub(super) async fn subscribe(
    shared: &Arc<DaemonShared>,
    request: &LocalRequest,
    wanted: bool,
) -> RouteAnswer {
    let subscription = TopicSubscription::parse(&request.body, &shared.slug)?;
    let topic = &subscription.topic;
    let line = line(shared)?;
    let changed = if wanted {
        shared.topics.subscribe(&line, topic).await
    } else {
        shared.topics.unsubscribe(&line, topic).await
    };
    changed.map_err(|error| match &error {
        SubscribeError::Line(error) => failed(error),
        SubscribeError::Io(_) => IpcRefusal::new(503, error.to_string()),
    })?;
    super::json(
        200,
        &json!({"ok": true, "topic": topic.as_str(), "subscribed": wanted}),
    )
}

pub(super) async fn topics(shared: &Arc<DaemonShared>) -> RouteAnswer {
    let listed = shared.topics.refresh(&*line(shared)?).await;
    let listed = listed.map_err(|error| failed(&error))?;
    let topics: Vec<TopicItem> = listed
        .into_iter()
        .map(|topic| TopicItem {
            subscribed: shared.topics.is_subscribed(&topic.name),
            id: topic.id,
            name: topic.name,
            description: topic.description,
            visibility: topic.visibility,
            member_count: topic.member_count,
            created_at: topic.created_at,
        })
        .collect();
    super::json(200, &json!({"topics": topics}))
}

pub(super) async fn peers(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let slug = shared.slug.as_str();
    let pairs = QueryPairs::parse(&request.query);
    if pairs.get("mesh").is_some_and(|mesh| mesh != slug) {
        return Err(IpcRefusal::new(404, "mesh_not_attached"));
    }
    let listed = shared.peers.refresh(&*line(shared)?).await;
    let listed = listed.map_err(|error| failed(&error))?;
    let mut peers = Vec::with_capacity(listed.len());
    for peer in listed {
        let mut peer = serde_json::to_value(peer)
            .map_err(|error| IpcRefusal::new(500, format!("internal: {error}")))?;
        peer["mesh"] = Value::from(slug);
        peers.push(peer);
    }
    super::json(200, &json!({"peers": peers}))
}

pub(super) async fn profile(shared: &Arc<DaemonShared>, request: &LocalRequest) -> RouteAnswer {
    let update = PeerProfileUpdate::parse(&request.body)?;
    let line = line(shared)?;
    let mut frames: Vec<ClientFrame> = Vec::new();
    if let Some(summary) = &update.summary {
        let summary = SummaryText::parse(summary)
            .map_err(|error| IpcRefusal::bad_request(error.to_string()))?;
        frames.push(SetSummary { summary }.into());
    }
    if let Some(status) = update.status {
        frames.push(SetStatus { status }.into());
    }
    if let Some(visible) = update.visible {
        frames.push(SetVisible { visible }.into());
    }
    for frame in frames {
        line.notify(frame).await.map_err(|error| failed(&error))?;
    }
    super::json(200, &json!({"ok": true, "applied": update.applied()}))
}
