//! The event stream.
//!
//! Invariant: a stream takes one of a fixed number of places as long as its reader is there; the last events before the end of
//! the daemon are sent before the stream ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use http::{HeaderValue, header};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::timeout;

use super::refused;
use crate::daemon::ipc_limits::IpcPlace;
use crate::daemon::shared::DaemonShared;
use crate::ipc::{IpcRefusal, sse_comment};
use crate::limits::SSE_KEEPALIVE_MS;
use crate::outbox::QueuePressure;

struct Follower {
    shared: Arc<DaemonShared>,
    events: Receiver<Arc<str>>,
    first: VecDeque<String>,
    is_over: bool,
    _place: IpcPlace,
}

pub(super) async fn follow(shared: &Arc<DaemonShared>, streams_max: usize) -> Response {
    if shared.disk_pressure().await == QueuePressure::Degraded {
        return refused(&IpcRefusal::insufficient_storage());
    }
    let Some(place) = shared.streams.take(streams_max) else {
        return refused(&IpcRefusal::too_many_streams());
    };
    let follower = Follower {
        shared: Arc::clone(shared),
        events: shared.events.subscribe(),
        first: VecDeque::from([sse_comment("connected")]),
        is_over: false,
        _place: place,
    };
    let events = stream::unfold(follower, async |mut follower| {
        let text = follower.next().await?;
        Some((
            Ok::<_, std::convert::Infallible>(Bytes::from(text)),
            follower,
        ))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    response
}

impl Follower {
    async fn next(&mut self) -> Option<String> {
        if let Some(text) = self.first.pop_front() {
            return Some(text);
        }
        if self.is_over {
            return self.rest();
        }
        let keepalive = Duration::from_millis(SSE_KEEPALIVE_MS);
        let event = tokio::select! {
            biased;
            event = timeout(keepalive, self.events.recv()) => event,
            _ = self.shared.until_end() => {
                self.is_over = true;
                return self.rest();
            }
        };
        match event {
            Ok(Ok(text)) => Some(text.to_string()),
            Ok(Err(RecvError::Lagged(missed))) => Some(sse_comment(&format!("missed {missed}"))),
            Ok(Err(RecvError::Closed)) => None,
            Err(_) => Some(sse_comment("keepalive")),
        }
    }

    /// Events that were published before the end.
    fn rest(&mut self) -> Option<String> {
        self.events.try_recv().ok().map(|text| text.to_string())
    }
}
