//! `GET /events`: live events as server-sent events.
//!
//! Invariant: a stream holds one page and its position, however slow its reader is. A slow reader loses events; the numbers show
//! the gap.

use std::pin::pin;
use std::time::Duration;

use crate::runtime::{Runtime, RuntimeEvent};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use consign_engine::Slot;
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::api_error::ApiError;
use super::auth::{AuthorizedCaller, EventsRead};
use super::{ApiState, STREAMS_PER_TOKEN_MAX, until_disconnected, until_draining};
use consign_web::channel_body::ChannelBody;
use consign_web::presence::Presence;

const PAGES_AHEAD: usize = 1;
const HEARTBEAT: Duration = Duration::from_secs(15);

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
    let changes = state.runtime.hub().follow();
    let last = *changes.borrow();
    let seen = headers.get("last-event-id");
    let seen = seen.and_then(|id| id.to_str().ok()?.parse().ok());
    let after = match seen {
        // An unknown, larger number means that the clock was set back: all retained events are new to this reader.
        Some(seen) if seen > last => 0,
        Some(seen) => seen,
        None => last,
    };
    let (pages, body) = ChannelBody::new(PAGES_AHEAD);
    let stream = EventStream {
        runtime: state.runtime.clone(),
        allowed,
        after,
        changes,
        pages,
        presence,
        draining: state.options.draining.clone(),
        _place: place,
        _of_token: of_token,
    };
    tokio::spawn(stream.run());
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    Ok(response)
}

struct EventStream {
    runtime: Runtime,
    allowed: AuthorizedCaller<EventsRead>,
    after: u64,
    changes: watch::Receiver<u64>,
    pages: mpsc::Sender<Bytes>,
    presence: Option<Extension<Presence>>,
    draining: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
    _of_token: Option<Slot<[u8; 32]>>,
}

impl EventStream {
    /// Ends when the reader disconnects, its token is revoked, or the server drains.
    async fn run(mut self) {
        // A block without data is no event, but sets the last event id: a reader that reconnects before the first event continues
        // here.
        let connected = format!(": connected\nid: {}\n\n", self.after);
        let mut gone = pin!(until_disconnected(self.presence.take()));
        // A disconnect is detected from the first page on; otherwise only the second heartbeat would fail.
        tokio::select! {
            biased;
            () = &mut gone => return,
            sent = self.pages.send(Bytes::from(connected)) => if sent.is_err() { return },
        }
        loop {
            self.changes.mark_unchanged();
            if *self.draining.borrow() || !self.allowed.is_still_authorized(&self.runtime) {
                return;
            }
            let events = self.runtime.hub().after(self.after);
            if let Some(last) = events.last() {
                self.after = last.number;
                let text: String = events.iter().map(block).collect();
                if self.pages.send(Bytes::from(text)).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(HEARTBEAT) => {
                    if self.pages.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                        return;
                    }
                }
                () = until_draining(&mut self.draining) => return,
                () = self.pages.closed() => return,
                () = &mut gone => return,
            }
        }
    }
}

fn block(event: &RuntimeEvent) -> String {
    let data = serde_json::to_string(event).expect("texts and JSON values always serialise");
    format!(
        "id: {}\nevent: {}\ndata: {data}\n\n",
        event.number, event.kind
    )
}
