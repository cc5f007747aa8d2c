//! Reads the frames of a connection. Messages are prepared and committed while later frames are read.
//!
//! Ordering: messages are committed in the order of the frames, and answers have that order. Any other
//! frame waits until all messages and acknowledgements before it are stored, so that it sees their effects and they do not
//! see its own.

use std::pin::Pin;

use consign_web::websocket::{SocketMessage, SocketMessages};
use futures_util::StreamExt as _;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};

use super::MeshLine;
use crate::accept::{AcceptReason, AcceptRefusal};
use crate::broker::accept::PreparedSend;
use crate::frame::{AckFrame, ClientAck, ClientFrame, Framed, MeshFrameError, SendFrame};
use crate::limits::SENDS_IN_FLIGHT_MAX;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A message and the id of its request.
struct QueuedSend {
    send: SendFrame,
    req_id: Option<String>,
}

/// The messages of a connection on their way.
#[derive(Default)]
struct SendPipeline<'a> {
    prepared: FuturesOrdered<Boxed<'a, (QueuedSend, PreparedSend)>>,
    answered: FuturesOrdered<Boxed<'a, (AckFrame, Option<String>)>>,
    acked: FuturesUnordered<Boxed<'a, ()>>,
}

impl SendPipeline<'_> {
    fn is_full(&self) -> bool {
        self.prepared.len() + self.answered.len() >= SENDS_IN_FLIGHT_MAX
            || self.acked.len() >= SENDS_IN_FLIGHT_MAX
    }

    fn is_idle(&self) -> bool {
        self.prepared.is_empty() && self.answered.is_empty() && self.acked.is_empty()
    }
}

impl MeshLine {
    /// Until the socket is closed.
    pub(super) async fn read_frames(&self, mut messages: SocketMessages) {
        let mut pipeline = SendPipeline::default();
        // A ledger with several writers commits what is queued in any order, so there is one commit at a time.
        let commits_ahead = !self.broker.inner.settings.node.shared;
        // A frame that waits for the messages before it.
        let mut held: Option<Framed<ClientFrame>> = None;
        loop {
            if let Some(framed) = held.take_if(|_| pipeline.is_idle()) {
                self.handle(framed).await;
            }
            let reads = held.is_none() && !pipeline.is_full();
            let commits = pipeline.answered.is_empty() || commits_ahead;
            tokio::select! {
                Some((request, prepared)) = pipeline.prepared.next(), if commits => {
                    pipeline.answered.push_back(Box::pin(self.commit(request, prepared)));
                }
                Some((ack, req_id)) = pipeline.answered.next() => {
                    self.answer(ack, req_id.as_deref());
                }
                Some(()) = pipeline.acked.next() => {}
                message = messages.next(), if reads => {
                    let Some(message) = message else { break };
                    if let SocketMessage::Text(text) = message {
                        held = self.take(&text, &mut pipeline);
                    }
                }
            }
        }
        // What was committed is accepted, whether or not its answer is read; acknowledgements count too.
        while pipeline.acked.next().await.is_some() {}
    }

    /// Starts with a frame. Returns one that has to wait for the messages before it.
    fn take<'a>(
        &'a self,
        text: &str,
        pipeline: &mut SendPipeline<'a>,
    ) -> Option<Framed<ClientFrame>> {
        let framed = match ClientFrame::parse(text) {
            Ok(framed) => framed,
            Err(error) => {
                self.refuse_frame(error, pipeline);
                return None;
            }
        };
        let Framed { frame, req_id } = framed;
        if let ClientFrame::Send(send) = frame {
            let request = QueuedSend {
                send: *send,
                req_id,
            };
            pipeline.prepared.push_back(Box::pin(self.prepare(request)));
            return None;
        }
        if let ClientFrame::ClientAck(ack) = frame {
            pipeline.acked.push(Box::pin(self.on_client_ack(*ack)));
            return None;
        }
        // An unknown type has no answer.
        let is_known = !matches!(frame, ClientFrame::Unknown(_));
        is_known.then_some(Framed { frame, req_id })
    }

    async fn prepare(&self, request: QueuedSend) -> (QueuedSend, PreparedSend) {
        let prepared = self.broker.prepare(&self.identity, &request.send).await;
        (request, prepared)
    }

    async fn commit(
        &self,
        request: QueuedSend,
        prepared: PreparedSend,
    ) -> (AckFrame, Option<String>) {
        let QueuedSend { send, req_id } = request;
        let ack = self.broker.submit(&self.identity, &send, prepared).await;
        (ack, req_id)
    }

    /// A client that did not negotiate takes any `ack` for success, so the error precedes it.
    fn answer(&self, ack: AckFrame, req_id: Option<&str>) {
        if !self.current_state().has_negotiated
            && let Some(error) = ack.to_error()
        {
            self.send(error, req_id);
        }
        self.send(ack, req_id);
    }

    /// A frame that is none. A `send` is answered in its turn.
    fn refuse_frame<'a>(&'a self, error: MeshFrameError, pipeline: &mut SendPipeline<'a>) {
        let text = error.to_string();
        let (kind, id, req_id) = match error {
            MeshFrameError::Malformed {
                kind, id, req_id, ..
            } => (kind, id, req_id),
            MeshFrameError::TooLong(_)
            | MeshFrameError::NotAnObject(_)
            | MeshFrameError::NoType => (String::new(), None, None),
        };
        if kind == "send" {
            let refusal = AcceptRefusal::new(AcceptReason::InvalidFrame, text);
            let ack = refusal.to_ack(id.as_deref(), None);
            let prepared = PreparedSend::Answered(Box::new(ack));
            let request = QueuedSend {
                send: SendFrame::default(),
                req_id,
            };
            let ready = std::future::ready((request, prepared));
            pipeline.prepared.push_back(Box::pin(ready));
        } else {
            self.send_error("invalid_frame", text, req_id.as_deref());
        }
    }

    async fn on_client_ack(&self, ack: ClientAck) {
        self.state.send_if_modified(|state| {
            let is_first = !state.has_acked;
            state.has_acked = true;
            is_first
        });
        if let Err(error) = self.acknowledge(&ack).await {
            tracing::warn!(%error, member = self.member_id, "an acknowledgement was not stored");
        }
    }
}
