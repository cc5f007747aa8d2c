//! `GET /v1/beam/events?agent=`: the state changes of an agent's messages as server-sent events.
//!
//! Invariant: the id of an event is the number of its fact, so a reader that continues after the last id it saw misses no
//! change that the ledger still has.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use consign_kernel::ids::FactSeq;
use consign_web::presence::Presence;
use consign_web::sse::{self, StreamPage, StreamSource};
use http::{HeaderMap, Uri};

use super::reads::agent;
use super::{BusCaller, views};
use crate::bus::MessageEventReader;
use crate::http::BeamFace;
use crate::http::problem_response::BeamProblemResponse;
use crate::http::query::QueryText;
use crate::lifecycle::state_word;
use crate::text::BeamValue;

pub(super) async fn events(
    State(face): State<BeamFace>,
    _: BusCaller,
    presence: Option<Extension<Presence>>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, BeamProblemResponse> {
    let agent = agent(&QueryText::of_uri(&uri))?;
    let seen = headers.get("last-event-id");
    let seen = seen.and_then(|id| id.to_str().ok()?.parse().ok());
    let reader = face.beam.message_events(&agent, seen.map(FactSeq)).await?;
    let presence = presence.map(|Extension(presence)| presence);
    let stopping = face.beam.bus_stopping();
    let stream = MessageEventStream(reader);
    Ok(sse::respond(stream, stopping, presence.unwrap_or_default()))
}

struct MessageEventStream(MessageEventReader);

impl StreamSource for MessageEventStream {
    fn position(&self) -> String {
        self.0.position().0.to_string()
    }

    /// The key of the bus does not change while the process runs.
    async fn is_authorized(&self) -> bool {
        true
    }

    async fn next_page(&mut self) -> Option<StreamPage> {
        let (events, more) = match self.0.next_page().await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "an event stream ended");
                return None;
            }
        };
        let mut text = String::new();
        for event in &events {
            let id = event.position.0.to_string();
            let data = BeamValue::Object(views::event(event)).to_text();
            text.push_str(&sse::block(Some(&id), state_word(event.state), &data));
        }
        Some(StreamPage { text, more })
    }

    async fn changed(&mut self) -> bool {
        self.0.changed().await
    }
}
