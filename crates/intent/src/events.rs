//! `GET /events`: the facts of the caller's own intents as server-sent events, resumable by `Last-Event-ID`.
//!
//! Invariant: a client that continues after the last id it saw misses no fact that is still stored.

use std::pin::pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use consign_engine::{Caller, Engine, EventFilter, Slot};
use consign_kernel::error::Code;
use consign_kernel::fact::Event;
use consign_kernel::ids::FactSeq;
use consign_kernel::limits;
use consign_kernel::profile::Face;
use http::{HeaderValue, header};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::IntentFace;
use super::query::{QueryParams, cursor};
use super::read::fact_out;
use consign_web::channel_body::ChannelBody;
use consign_web::reject::Reject;

/// Facts per page. A stream holds two pages at most: one being sent and one that waits for a slow reader.
const PAGE_FACTS: u32 = 50;
const PAGES_AHEAD: usize = 1;
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) async fn events(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let request = face.authenticate(request, limits::BODY_BYTES_MAX).await?;
    request.pass().await?;
    let params = QueryParams::of(&request.parts.uri)?;
    let after = match request
        .header("last-event-id")
        .or_else(|| params.get("after"))
    {
        Some(text) => face.check_issued(cursor::event(text)?).await?,
        None => face.engine.last_fact().await?,
    };
    let slot = face.engine.stream_slot(&request.caller).ok_or_else(|| {
        Reject::new(
            Code::LimitExceeded,
            "Too many event streams are open; close one first.",
        )
    })?;
    let (pages, body) = ChannelBody::new(PAGES_AHEAD);
    let stream = EventStream {
        engine: face.engine.clone(),
        filter: EventFilter {
            face: Face::Intent,
            owner: request.caller.id().to_owned(),
            after,
            limit: PAGE_FACTS,
        },
        pages,
        caller: request.caller.clone(),
        draining: face.options.draining.clone(),
        heartbeat: heartbeat(),
        _slot: slot,
    };
    tokio::spawn(stream.run());
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    Ok(response)
}

impl IntentFace {
    async fn check_issued(&self, after: FactSeq) -> Result<FactSeq, Reject> {
        if self.engine.has_issued_fact(after).await? {
            return Ok(after);
        }
        Err(Reject::new(
            Code::CursorUnknown,
            "No event has this id yet: it is of another ledger, or of this one before it was restored. Begin again without it.",
        ))
    }
}

struct EventStream {
    engine: Engine,
    filter: EventFilter,
    pages: mpsc::Sender<Bytes>,
    caller: Caller,
    draining: watch::Receiver<bool>,
    heartbeat: Interval,
    _slot: Slot<String>,
}

impl EventStream {
    /// Ends when the reader disconnects, its key is revoked, the server drains or the ledger fails.
    async fn run(mut self) {
        let mut news = self.engine.follow(&self.caller);
        // A block without data is no event, but clients remember its id: a client that reconnects before the first
        // event continues here.
        let begin = cursor::event_text(self.filter.after);
        let connected = format!(": connected\nid: {begin}\n\n");
        if self.pages.send(Bytes::from(connected)).await.is_err() {
            return;
        }
        loop {
            news.mark_unchanged();
            let over = self.pages.is_closed() || *self.draining.borrow();
            if over || !matches!(self.engine.is_active(&self.caller).await, Ok(true)) {
                return;
            }
            match self.page().await {
                Some(true) => continue,
                Some(false) => {}
                None => return,
            }
            tokio::select! {
                changed = news.changed() => if changed.is_err() { return },
                alive = self.beat() => if alive.is_none() { return },
            }
        }
    }

    /// Sends one page; returns whether more facts are available.
    async fn page(&mut self) -> Option<bool> {
        let engine = self.engine.clone();
        let mut reading = pin!(engine.events(self.filter.clone()));
        // On PostgreSQL a read waits for open transactions of other nodes.
        let read = loop {
            tokio::select! {
                page = &mut reading => break page,
                alive = self.beat() => alive?,
            }
        };
        let page = match read {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "an event stream ended");
                return None;
            }
        };
        self.filter.after = page.seen;
        if !page.events.is_empty() {
            let text: String = page.events.iter().map(event_text).collect();
            self.pages.send(Bytes::from(text)).await.ok()?;
            self.heartbeat.reset();
        }
        Some(page.more)
    }

    /// Sends a heartbeat when nothing was sent for a while. `None` when the stream is over.
    async fn beat(&mut self) -> Option<()> {
        tokio::select! {
            _ = self.heartbeat.tick() => {}
            () = drained(&mut self.draining) => return None,
            () = self.pages.closed() => return None,
        }
        let alive = Bytes::from_static(b": still here\n\n");
        self.pages.send(alive).await.ok()
    }
}

fn heartbeat() -> Interval {
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat
}

fn event_text(event: &Event) -> String {
    let mut data = fact_out(&event.fact);
    data.text("intent", &event.id.to_string())
        .text("namespace", &event.namespace)
        .text("goal", &event.goal);
    format!(
        "id: {}\nevent: {}\ndata: {}\n\n",
        cursor::event_text(event.fact.seq),
        event.fact.verb.fact(),
        data.finish()
    )
}

/// Returns when the server drains.
pub(super) async fn drained(draining: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is the end as well.
    let _ = draining.wait_for(|draining| *draining).await;
}
