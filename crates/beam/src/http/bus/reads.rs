//! `GET /v1/beam/poll`, `/history`, `/dead-letter` and `/stats`.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use consign_kernel::error::Code;
use consign_kernel::ids::Micros;
use consign_kernel::state::State as MessageState;
use consign_web::presence::Presence;
use http::{StatusCode, Uri};

use super::{BusCaller, StatsReader, views};
use crate::bus::{HistoryFilter, PollFilter};
use crate::http::BeamFace;
use crate::http::problem_response::BeamProblemResponse;
use crate::http::query::QueryText;
use crate::lifecycle::legacy;

pub(in crate::http) const POLL_DEFAULT: u32 = 10;
pub(in crate::http) const POLL_MAX: u32 = 100;
pub(in crate::http) const HISTORY_DEFAULT: u32 = 50;
pub(in crate::http) const DEAD_LETTERS_DEFAULT: u32 = 100;
pub(in crate::http) const LIST_MAX: u32 = 500;
/// The longest wait for a message.
pub(in crate::http) const WAIT_MAX_S: f64 = 30.0;

pub(super) async fn poll(
    State(face): State<BeamFace>,
    _: BusCaller,
    presence: Option<Extension<Presence>>,
    uri: Uri,
) -> Result<Response, BeamProblemResponse> {
    let query = QueryText::of_uri(&uri);
    let agent = agent(&query)?;
    let Some(state) = legacy::normalise_status(query.text("status").unwrap_or("delivered")) else {
        return Ok(views::respond(
            StatusCode::OK,
            views::list(&[], views::polled),
        ));
    };
    let filter = PollFilter {
        agent,
        state,
        since: instant(&query, "since"),
        limit: query.number("limit").unwrap_or(POLL_DEFAULT).min(POLL_MAX),
    };
    let wait = query.decimal("wait").unwrap_or_default();
    let wait = Duration::from_secs_f64(wait.clamp(0.0, WAIT_MAX_S));
    let presence = presence.map(|Extension(presence)| presence);
    let presence = presence.unwrap_or_default();
    let leave = presence.hung_up();
    let messages = face
        .beam
        .poll_messages_waiting(&filter, wait, leave)
        .await?;
    let body = views::list(&messages, views::polled);
    Ok(views::respond(StatusCode::OK, body))
}

pub(super) async fn history(
    State(face): State<BeamFace>,
    _: BusCaller,
    uri: Uri,
) -> Result<Response, BeamProblemResponse> {
    let query = QueryText::of_uri(&uri);
    let state: Option<MessageState> = match query.text("status") {
        None => None,
        Some(word) => match legacy::normalise_status(word) {
            Some(state) => Some(state),
            // No message has another word.
            None => {
                return Ok(views::respond(
                    StatusCode::OK,
                    views::list(&[], views::full),
                ));
            }
        },
    };
    let filter = HistoryFilter {
        state,
        since: instant(&query, "since"),
        until: instant(&query, "until"),
        ..list_filter(&query, HISTORY_DEFAULT)
    };
    let messages = face.beam.message_history(&filter).await?;
    let body = views::list(&messages, views::full);
    Ok(views::respond(StatusCode::OK, body))
}

pub(super) async fn dead_letters(
    State(face): State<BeamFace>,
    _: BusCaller,
    uri: Uri,
) -> Result<Response, BeamProblemResponse> {
    let query = QueryText::of_uri(&uri);
    let filter = list_filter(&query, DEAD_LETTERS_DEFAULT);
    let messages = face.beam.dead_messages(&filter).await?;
    let body = views::list(&messages, views::full);
    Ok(views::respond(StatusCode::OK, body))
}

pub(super) async fn stats(
    State(face): State<BeamFace>,
    _: StatsReader,
) -> Result<Response, BeamProblemResponse> {
    let stats = face.beam.bus_stats().await?;
    Ok(views::respond(StatusCode::OK, views::stats(&stats)))
}

/// The recipient whose messages are read.
pub(super) fn agent(query: &QueryText) -> Result<String, BeamProblemResponse> {
    let agent = query.text("agent").map(str::to_owned);
    agent.ok_or_else(|| {
        let text = "agent query parameter is required";
        BeamProblemResponse::new(Code::MissingAgent, text)
    })
}

fn list_filter(query: &QueryText, limit: u32) -> HistoryFilter {
    let text = |name: &str| query.text(name).map(str::to_owned);
    HistoryFilter {
        sender: text("sender"),
        recipient: text("recipient"),
        intent: text("intent"),
        limit: query.number("limit").unwrap_or(limit).min(LIST_MAX),
        ..HistoryFilter::default()
    }
}

/// Seconds since 1970; zero is no filter.
#[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
fn instant(query: &QueryText, name: &str) -> Option<Micros> {
    let seconds = query.decimal(name).filter(|seconds| *seconds != 0.0)?;
    Some(Micros((seconds * 1e6).round() as i64))
}
