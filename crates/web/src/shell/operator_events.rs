//! `GET /admin/events`: the facts of all owners and faces as server-sent events, for operators.
//!
//! Invariant: a reader that continues after the last id it saw misses no fact that is still stored, and nothing is sent after
//! its credential was replaced.

use axum::extract::{Request, State};
use axum::response::Response;
use consign_engine::{Engine, Operator, Slot};
use consign_kernel::error::Code;
use consign_kernel::fact::Event;
use consign_kernel::ids::FactSeq;
use consign_kernel::profile::Face;
use http::HeaderMap;
use tokio::sync::broadcast;

use super::Shell;
use crate::json_out::Json;
use crate::operator::OperatorCredentials;
use crate::presence::Presence;
use crate::reject::Reject;
use crate::sse::{self, StreamPage, StreamSource};

const PAGE_FACTS: u32 = 200;

/// What a reader asks for.
#[derive(Clone, Debug, Default)]
struct EventQuery {
    face: Option<Face>,
    namespace: Option<String>,
    goal: Option<String>,
    after: Option<FactSeq>,
}

pub(super) async fn events(
    State(shell): State<Shell>,
    request: Request,
) -> Result<Response, Reject> {
    let headers = request.headers().clone();
    let presence = request.extensions().get::<Presence>();
    let presence = presence.cloned().unwrap_or_default();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let operator = shell.operator(request).await?;
    let options = &shell.inner.options;
    let engine = options.engine.clone();
    let query = EventQuery::read(&query, &headers)?;
    let after = match query.after {
        Some(after) if engine.has_issued_fact(after).await? => after,
        Some(_) => {
            return Err(Reject::new(
                Code::CursorUnknown,
                "No event has this id yet: it is of another ledger, or of this one before it was restored. Begin again without it.",
            ));
        }
        None => engine.last_fact().await?,
    };
    let slot = engine.operator_stream_slot(operator).ok_or_else(|| {
        Reject::new(
            Code::LimitExceeded,
            "Too many event streams are open; close one first.",
        )
    })?;
    let facts = AllFacts {
        changes: engine.follow_owners(),
        engine,
        operator,
        operators: options.operators.clone(),
        headers,
        query,
        after,
        _slot: slot,
    };
    Ok(sse::respond(facts, options.draining.clone(), presence))
}

impl EventQuery {
    fn read(query: &str, headers: &HeaderMap) -> Result<Self, Reject> {
        let mut read = Self::default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        for pair in pairs {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decoded(value)?;
            match name {
                "face" => read.face = Some(face(&value)?),
                "namespace" => read.namespace = Some(value),
                "goal" => read.goal = Some(value),
                "after" => read.after = Some(position(&value)?),
                _ => {
                    return Err(Reject::new(
                        Code::InvalidRequest,
                        "The parameters are face, namespace, goal and after.",
                    ));
                }
            }
        }
        if let Some(last) = headers.get("last-event-id") {
            read.after = Some(position(last.to_str().unwrap_or_default())?);
        }
        Ok(read)
    }

    fn wants(&self, event: &Event) -> bool {
        let wanted = |wish: &Option<String>, is: &str| wish.as_ref().is_none_or(|wish| wish == is);
        wanted(&self.namespace, &event.namespace) && wanted(&self.goal, &event.goal)
    }
}

fn face(name: &str) -> Result<Face, Reject> {
    let mut faces = Face::ALL.iter().copied();
    faces.find(|face| face.name() == name).ok_or_else(|| {
        let names: Vec<&str> = Face::ALL.iter().map(|face| face.name()).collect();
        Reject::new(
            Code::InvalidRequest,
            format!("face must be one of {}.", names.join(", ")),
        )
    })
}

fn position(text: &str) -> Result<FactSeq, Reject> {
    text.parse().map(FactSeq).map_err(|_| {
        Reject::new(
            Code::InvalidCursor,
            "after and Last-Event-ID must be the id of an event seen before.",
        )
    })
}

fn percent_decoded(text: &str) -> Result<String, Reject> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or_default(),
                _ => return Err(unreadable_query()),
            },
            plain => plain,
        });
    }
    String::from_utf8(bytes).map_err(|_| unreadable_query())
}

fn unreadable_query() -> Reject {
    Reject::new(Code::InvalidRequest, "The query cannot be decoded.")
}

/// The facts of all intents.
struct AllFacts {
    engine: Engine,
    operator: Operator,
    operators: OperatorCredentials,
    /// With the credentials, which are checked again before each page.
    headers: HeaderMap,
    query: EventQuery,
    after: FactSeq,
    changes: broadcast::Receiver<std::sync::Arc<std::collections::BTreeSet<String>>>,
    _slot: Slot<String>,
}

impl StreamSource for AllFacts {
    fn position(&self) -> String {
        self.after.0.to_string()
    }

    async fn is_authorized(&self) -> bool {
        let allowed = self
            .operators
            .still_allow_reads(&self.engine, &self.headers);
        allowed.await
    }

    async fn next_page(&mut self) -> Option<StreamPage> {
        // A change from here on is received by the next `changed`.
        self.changes = self.changes.resubscribe();
        let facts = self
            .engine
            .all_events(self.operator, self.query.face, self.after, PAGE_FACTS);
        let page = match facts.await {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "an event stream of an operator ended");
                return None;
            }
        };
        self.after = page.seen;
        let wanted = page.events.iter().filter(|event| self.query.wants(event));
        Some(StreamPage {
            text: wanted.map(event_text).collect(),
            more: page.more,
        })
    }

    async fn changed(&mut self) -> bool {
        // A reader that fell behind reads again as well.
        !matches!(
            self.changes.recv().await,
            Err(broadcast::error::RecvError::Closed)
        )
    }
}

fn event_text(event: &Event) -> String {
    let fact = &event.fact;
    let mut data = Json::object();
    data.number("seq", fact.seq.0)
        .seconds("at", Some(fact.time_of_day()))
        .text("face", fact.face.name())
        .text("verb", fact.verb.fact())
        .maybe_text("from", fact.from.map(consign_kernel::state::State::name))
        .text("to", fact.to.name())
        .text("cause", fact.cause.name())
        .number("attempt", u64::from(fact.attempt))
        .text("owner", &fact.owner)
        .maybe_text("actor", fact.actor.as_deref())
        .maybe_text("detail", fact.detail.as_deref())
        .text("intent", &event.id.to_string())
        .text("namespace", &event.namespace)
        .text("goal", &event.goal);
    let id = fact.seq.0.to_string();
    sse::block(Some(&id), fact.verb.fact(), &data.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<EventQuery, Reject> {
        EventQuery::read(query, &HeaderMap::new())
    }

    #[test]
    fn a_query_names_face_namespace_and_goal_and_nothing_else() {
        let query = read("face=beam&goal=a%20b+c&namespace=x&after=7").unwrap();
        assert_eq!(query.face, Some(Face::Beam));
        assert_eq!(query.goal.as_deref(), Some("a b c"));
        assert_eq!(query.namespace.as_deref(), Some("x"));
        assert_eq!(query.after, Some(FactSeq(7)));
        for wrong in ["face=bean", "goals=a", "goal=%2", "goal=%ff", "after=x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_header_of_a_reader_that_connects_again_comes_before_the_query() {
        let mut headers = HeaderMap::new();
        headers.insert("last-event-id", "9".parse().unwrap());
        let query = EventQuery::read("after=7", &headers).unwrap();
        assert_eq!(query.after, Some(FactSeq(9)));
    }
}
