//! `GET /events`: what happens right now, as server-sent events.
//!
//! Invariant: a stream holds one page and its place, however slow its reader is. Who falls behind loses events; the numbers show it.

use std::pin::pin;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use consign_automation::runtime::{Runtime, Told};
use consign_engine::Slot;
use http::{HeaderMap, HeaderValue, header};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::reject::Reject;
use super::right::{Allowed, EventsRead};
use super::{Face, STREAMS_PER_TOKEN_MAX, drained, hung_up};
use crate::web::channel_body::ChannelBody;

use crate::web::presence::Presence;

const PAGES_AHEAD: usize = 1;
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) async fn events(
    State(face): State<Face>,
    allowed: Allowed<EventsRead>,
    presence: Option<Extension<Presence>>,
    headers: HeaderMap,
) -> Result<Response, Reject> {
    let place = std::sync::Arc::clone(&face.streams).try_acquire_owned();
    let full = "too many event streams are open; close one first";
    let place = place.map_err(|_| Reject::busy(full))?;
    let of_token = match allowed.token() {
        Some(token) => {
            let full = "this token has too many event streams open; close one first";
            let taken = face
                .streams_of_token
                .take(token, STREAMS_PER_TOKEN_MAX, usize::MAX);
            Some(taken.ok_or_else(|| Reject::busy(full))?)
        }
        None => None,
    };
    let news = face.runtime.hub().follow();
    let last = *news.borrow();
    let seen = headers.get("last-event-id");
    let seen = seen.and_then(|id| id.to_str().ok()?.parse().ok());
    let after = match seen {
        // One that was not given out yet is no number of ours, or the clock was set back: all that is kept is new to its reader.
        Some(seen) if seen > last => 0,
        Some(seen) => seen,
        None => last,
    };
    let (pages, body) = ChannelBody::new(PAGES_AHEAD);
    let stream = Stream {
        runtime: face.runtime.clone(),
        allowed,
        after,
        news,
        pages,
        presence,
        draining: face.options.draining.clone(),
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

struct Stream {
    runtime: Runtime,
    allowed: Allowed<EventsRead>,
    after: u64,
    news: watch::Receiver<u64>,
    pages: mpsc::Sender<Bytes>,
    presence: Option<Extension<Presence>>,
    draining: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
    _of_token: Option<Slot<[u8; 32]>>,
}

impl Stream {
    /// Ends when the reader goes away, its token is taken away, or the server drains.
    async fn run(mut self) {
        // A block without data is no event, but its id is remembered: who comes back before the first event goes on here.
        let connected = format!(": connected\nid: {}\n\n", self.after);
        let mut gone = pin!(hung_up(self.presence.take()));
        // Who left is looked for from the first page on; otherwise only a heartbeat would tell, and then the one after it.
        tokio::select! {
            biased;
            () = &mut gone => return,
            sent = self.pages.send(Bytes::from(connected)) => if sent.is_err() { return },
        }
        loop {
            self.news.mark_unchanged();
            if *self.draining.borrow() || !self.allowed.still(&self.runtime) {
                return;
            }
            let told = self.runtime.hub().after(self.after);
            if let Some(last) = told.last() {
                self.after = last.number;
                let text: String = told.iter().map(block).collect();
                if self.pages.send(Bytes::from(text)).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                changed = self.news.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(HEARTBEAT) => {
                    if self.pages.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                        return;
                    }
                }
                () = drained(&mut self.draining) => return,
                () = self.pages.closed() => return,
                () = &mut gone => return,
            }
        }
    }
}

fn block(told: &Told) -> String {
    let data = serde_json::to_string(told).expect("texts and JSON values always serialise");
    format!(
        "id: {}\nevent: {}\ndata: {data}\n\n",
        told.number, told.kind
    )
}
