//! `GET /events`: the events of jobs on all nodes, and the live events of this process, as server-sent events.
//!
//! Invariant: an event of a job has the number of its fact as id, and a reader that continues after the last id it saw misses no
//! event of a job that the ledger still has. A live event has no id, so it never moves a reader past a fact.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use consign_engine::Slot;
use consign_kernel::ids::FactSeq;
use consign_web::presence::Presence;
use consign_web::sse::{self, StreamPage, StreamSource};
use http::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::api_error::ApiError;
use super::auth::{AuthorizedCaller, EventsRead};
use super::views::events::{data_line, job_event, live_events};
use super::{ApiState, STREAMS_PER_TOKEN_MAX};
use crate::runtime::{JobEventReader, Runtime};

/// Live events per page.
const LIVE_MAX: usize = 50;

pub(super) async fn events(
    State(state): State<ApiState>,
    allowed: AuthorizedCaller<EventsRead>,
    presence: Option<Extension<Presence>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let place = std::sync::Arc::clone(&state.streams).try_acquire_owned();
    let full = "too many event streams are open; close one first";
    let place = place.map_err(|_| ApiError::busy(full))?;
    let of_token = match allowed.token() {
        Some(token) => {
            let full = "this token has too many event streams open; close one first";
            let taken = state
                .streams_of_token
                .take(token, STREAMS_PER_TOKEN_MAX, usize::MAX);
            Some(taken.ok_or_else(|| ApiError::busy(full))?)
        }
        None => None,
    };
    let runtime = state.runtime.clone();
    let seen = headers.get("last-event-id");
    let seen = seen.and_then(|id| id.to_str().ok()?.parse().ok());
    let after = start(&runtime, seen.map(FactSeq)).await?;
    let new_live_events = runtime.live_events().follow();
    let live_after = *new_live_events.borrow();
    let stream = AutomationEvents {
        job_events: runtime.job_events(after),
        new_facts: runtime.follow_jobs(),
        live_after,
        new_live_events,
        runtime,
        allowed,
        _place: place,
        _of_token: of_token,
    };
    let presence = presence.map(|Extension(presence)| presence);
    let draining = state.options.draining.clone();
    Ok(sse::respond(stream, draining, presence.unwrap_or_default()))
}

/// The fact after which a stream begins.
async fn start(runtime: &Runtime, seen: Option<FactSeq>) -> Result<FactSeq, ApiError> {
    let engine = runtime.engine();
    match seen {
        Some(seen) if engine.has_issued_fact(seen).await? => Ok(seen),
        // A number of another ledger, or of this one before it was restored: all that is kept is new to this reader.
        Some(_) => Ok(FactSeq(0)),
        None => Ok(engine.last_fact().await?),
    }
}

struct AutomationEvents {
    runtime: Runtime,
    allowed: AuthorizedCaller<EventsRead>,
    job_events: JobEventReader,
    new_facts: watch::Receiver<()>,
    live_after: u64,
    new_live_events: watch::Receiver<u64>,
    _place: OwnedSemaphorePermit,
    _of_token: Option<Slot<[u8; 32]>>,
}

impl StreamSource for AutomationEvents {
    fn position(&self) -> String {
        self.job_events.position().0.to_string()
    }

    async fn is_authorized(&self) -> bool {
        self.allowed.is_still_authorized(&self.runtime)
    }

    async fn next_page(&mut self) -> Option<StreamPage> {
        self.new_facts.mark_unchanged();
        // A live event that is already published may refer to a fact that is already committed, so facts come first.
        let live_last = *self.new_live_events.borrow_and_update();
        let page = match self.job_events.next_page().await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "an event stream ended");
                return None;
            }
        };
        let mut text = String::new();
        for event in &page.events {
            let (kind, data) = job_event(event);
            let id = event.position.map(|fact| fact.0.to_string());
            let data = data_line(kind, event.at, &data);
            text.push_str(&sse::block(id.as_deref(), kind, &data));
        }
        if page.more && !page.events.is_empty() {
            return Some(StreamPage { text, more: true });
        }
        let live = self.runtime.live_events();
        let (events, seen) = live.between(self.live_after, live_last, LIVE_MAX);
        for event in &events {
            for (kind, data) in live_events(event) {
                let data = data_line(kind, event.at, &data);
                text.push_str(&sse::block(None, kind, &data));
            }
        }
        self.live_after = if events.len() < LIVE_MAX {
            live_last
        } else {
            seen
        };
        Some(StreamPage {
            text,
            more: page.more || self.live_after < live_last,
        })
    }

    async fn changed(&mut self) -> bool {
        tokio::select! {
            changed = self.new_facts.changed() => changed.is_ok(),
            changed = self.new_live_events.changed() => changed.is_ok(),
        }
    }
}
