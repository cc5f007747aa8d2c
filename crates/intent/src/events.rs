//! `GET /events`: the facts of the caller's own intents as server-sent events, resumable by `Last-Event-ID`.
//!
//! Invariant: a client that continues after the last id it saw misses no fact that is still stored.

use axum::extract::{Request, State};
use axum::response::Response;
use consign_engine::{Caller, Engine, EventFilter, Slot};
use consign_kernel::error::Code;
use consign_kernel::fact::Event;
use consign_kernel::ids::FactSeq;
use consign_kernel::limits;
use consign_kernel::profile::Face;
use consign_kernel::record::KeyScope;
use consign_web::presence::Presence;
use consign_web::sse::{self, StreamPage, StreamSource};
use tokio::sync::watch;

use super::IntentFace;
use super::query::{QueryParams, cursor};
use super::read::fact_out;
use consign_web::reject::Reject;

const PAGE_FACTS: u32 = 50;

pub(super) async fn events(
    State(face): State<IntentFace>,
    request: Request,
) -> Result<Response, Reject> {
    let request = face
        .authenticate(request, limits::BODY_BYTES_MAX, Some(KeyScope::Read))
        .await?;
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
    let facts = OwnFacts {
        engine: face.engine.clone(),
        filter: EventFilter {
            face: Face::Intent,
            owner: request.caller.id().to_owned(),
            after,
            limit: PAGE_FACTS,
        },
        new_facts: face.engine.follow(&request.caller),
        caller: request.caller.clone(),
        _slot: slot,
    };
    let presence = request.parts.extensions.get::<Presence>();
    let presence = presence.cloned().unwrap_or_default();
    Ok(sse::respond(facts, face.options.draining.clone(), presence))
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

/// The facts of one caller's intents.
struct OwnFacts {
    engine: Engine,
    filter: EventFilter,
    new_facts: watch::Receiver<()>,
    caller: Caller,
    _slot: Slot<String>,
}

impl StreamSource for OwnFacts {
    fn position(&self) -> String {
        cursor::event_text(self.filter.after)
    }

    async fn is_authorized(&self) -> bool {
        matches!(self.engine.is_active(&self.caller).await, Ok(true))
    }

    /// On PostgreSQL the read waits for open transactions of other nodes.
    async fn next_page(&mut self) -> Option<StreamPage> {
        self.new_facts.mark_unchanged();
        let page = match self.engine.events(self.filter.clone()).await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "an event stream ended");
                return None;
            }
        };
        self.filter.after = page.seen;
        Some(StreamPage {
            text: page
                .events
                .iter()
                .filter(|event| self.caller.may_use_namespace(&event.namespace))
                .map(event_text)
                .collect(),
            more: page.more,
        })
    }

    async fn changed(&mut self) -> bool {
        self.new_facts.changed().await.is_ok()
    }
}

fn event_text(event: &Event) -> String {
    let mut data = fact_out(&event.fact);
    data.text("intent", &event.id.to_string())
        .text("namespace", &event.namespace)
        .text("goal", &event.goal);
    let id = cursor::event_text(event.fact.seq);
    sse::block(Some(&id), event.fact.verb.fact(), &data.finish())
}
