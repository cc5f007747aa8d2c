//! One connection to the broker: its hello, its frames, and the mail that it gets.
//!
//! Invariant: nothing is answered before a valid hello but errors; the number of connections that have not said hello and
//! the time for it are limited. Messages of a connection are accepted in the order of its frames, and each is answered once.

mod acks;
mod claims;
mod copies;
mod frames;
mod hello;
mod pipeline;
mod pushed;
mod topic_frames;

use std::sync::Arc;
use std::time::Duration;

use consign_web::websocket::{CloseCode, Options, SocketMessage, SocketMessages, SocketSender};
use tokio::sync::watch;

use super::accept::MeshSender;
use super::records::MeshRecord;
use super::{Broker, BrokerMetric};
use crate::frame::{BrokerFrame, ClientFrame, ErrorFrame, Framed, MeshFrameError};
use crate::hello::HelloRefusal;
use crate::keys::MeshPublicKey;
use crate::limits::{
    BROKER_FRAME_BYTES_MAX, FRAME_BYTES_MAX, GREETINGS_MAX, HELLO_WAIT_MS, PING_INTERVAL_MS,
    SEND_QUEUE_BYTES_MAX, SEND_QUEUE_FRAMES_MAX, STALE_AFTER_MS,
};
use crate::priority::PeerStatus;
use pushed::PushedMessages;

/// What the tasks of one connection share.
#[derive(Debug)]
struct MeshLine {
    broker: Broker,
    mesh: Arc<MeshRecord>,
    member_id: String,
    session: Option<MeshPublicKey>,
    presence_id: String,
    number: u64,
    sender: SocketSender,
    /// As a sender of messages.
    identity: MeshSender,
    state: watch::Sender<MailMode>,
    pushed: PushedMessages,
}

/// What decides how a connection gets its mail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct MailMode {
    has_negotiated: bool,
    has_acked: bool,
    status: PeerStatus,
}

/// The limits of a socket of the mesh.
pub(crate) fn socket_options() -> Options {
    Options {
        message_bytes_max: FRAME_BYTES_MAX,
        binary: consign_web::websocket::BinaryMessages::Delivered,
        queue_messages_max: SEND_QUEUE_FRAMES_MAX,
        queue_bytes_max: SEND_QUEUE_BYTES_MAX,
        ping_interval: Duration::from_millis(PING_INTERVAL_MS),
        silence_timeout: Duration::from_millis(STALE_AFTER_MS),
        ..Options::new()
    }
}

impl Broker {
    /// Serves a socket until it is closed.
    pub async fn serve_socket(self, sender: SocketSender, mut messages: SocketMessages) {
        let Ok(greeting) = Arc::clone(&self.inner.greetings).try_acquire_owned() else {
            let labels = ["too_many_greetings"];
            let counters = &self.inner.counters;
            counters.count(BrokerMetric::CONNECTIONS_REJECTED, &labels);
            sender.close(
                CloseCode::TRY_AGAIN_LATER,
                "too many connections wait for their hello",
            );
            return;
        };
        let wait = Duration::from_millis(HELLO_WAIT_MS);
        let line = tokio::time::timeout(wait, self.greet(&sender, &mut messages)).await;
        drop(greeting);
        match line {
            Ok(Some(line)) => {
                let counters = &self.inner.counters;
                counters.count(BrokerMetric::CONNECTIONS, &[]);
                counters.add(BrokerMetric::CONNECTIONS_ACTIVE, &[], 1);
                Arc::clone(&line).run(messages).await;
                counters.add(BrokerMetric::CONNECTIONS_ACTIVE, &[], -1);
            }
            // The socket is closed.
            Ok(None) => {}
            Err(_) => sender.close(CloseCode::POLICY_VIOLATION, "hello_timeout"),
        }
    }

    /// Reads frames up to a valid hello.
    async fn greet(
        &self,
        sender: &SocketSender,
        messages: &mut SocketMessages,
    ) -> Option<Arc<MeshLine>> {
        while let Some(message) = messages.next().await {
            let SocketMessage::Text(text) = message else {
                continue;
            };
            let greeted = match ClientFrame::parse(&text) {
                Ok(Framed { frame, req_id }) => {
                    let req_id = req_id.as_deref();
                    if let ClientFrame::Hello(hello) = frame {
                        self.hello(&hello, sender, req_id).await
                    } else if let ClientFrame::SessionHello(hello) = frame {
                        self.session_hello(&hello, sender, req_id).await
                    } else {
                        no_hello(sender, req_id);
                        continue;
                    }
                }
                Err(MeshFrameError::Malformed { kind, .. })
                    if matches!(kind.as_str(), "hello" | "session_hello") =>
                {
                    Err(HelloRefusal::Malformed)
                }
                Err(_) => {
                    no_hello(sender, None);
                    continue;
                }
            };
            let refusal = match greeted {
                Ok(line) => return Some(line),
                Err(refusal) => refusal,
            };
            self.refuse(sender, refusal);
            return None;
        }
        None
    }

    /// Says why a hello is refused, and closes.
    fn refuse(&self, sender: &SocketSender, refusal: HelloRefusal) {
        let word = refusal.as_str();
        let counters = &self.inner.counters;
        counters.count(BrokerMetric::CONNECTIONS_REJECTED, &[word]);
        let error = ErrorFrame {
            code: word.to_owned(),
            message: format!("the hello is refused: {word}"),
            id: None,
        };
        let _is_open = sender.try_send(BrokerFrame::from(error).to_text(None));
        let code = refusal.close_code();
        let reason = if refusal == HelloRefusal::Revoked {
            code.reason()
        } else {
            word
        };
        sender.close(CloseCode(code.code()), reason);
    }
}

fn no_hello(sender: &SocketSender, req_id: Option<&str>) {
    let text = BrokerFrame::from(ErrorFrame::no_hello()).to_text(req_id);
    if sender.try_send(text).is_err() {
        sender.close_now(CloseCode::TRY_AGAIN_LATER, "slow reader");
    }
}

/// How many connections may be without a hello.
pub(super) const fn greetings_max() -> usize {
    GREETINGS_MAX
}

impl MeshLine {
    /// Serves the connection until it is closed, and then gives back what it did not acknowledge.
    async fn run(self: Arc<Self>, messages: SocketMessages) {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(Arc::clone(&self).serve_member());
        if let Some(session) = self.session {
            tasks.spawn(Arc::clone(&self).serve_session(session));
        }
        self.read_frames(messages).await;
        // Nothing can be queued from here on; the tasks end by themselves, because a claim in progress must not be dropped.
        self.sender.close(CloseCode::NORMAL, "");
        self.leave();
        while tasks.join_next().await.is_some() {}
        self.give_back_all().await;
    }

    /// Queues a frame. A client that reads too slowly is disconnected, and an answer that no client would read is an error.
    fn send(&self, frame: impl Into<BrokerFrame>, req_id: Option<&str>) {
        let mut text = frame.into().to_text(req_id);
        if text.len() > BROKER_FRAME_BYTES_MAX {
            let error = ErrorFrame {
                code: "answer_too_long".to_owned(),
                message: "the answer is longer than a frame may be".to_owned(),
                id: req_id.map(str::to_owned),
            };
            text = BrokerFrame::from(error).to_text(req_id);
        }
        if self.sender.try_send(text).is_err() {
            self.sender
                .close_now(CloseCode::TRY_AGAIN_LATER, "slow reader");
        }
    }

    fn send_error(&self, code: &str, message: impl Into<String>, req_id: Option<&str>) {
        let error = ErrorFrame {
            code: code.to_owned(),
            message: message.into(),
            id: req_id.map(str::to_owned),
        };
        self.send(error, req_id);
    }

    fn current_state(&self) -> MailMode {
        *self.state.borrow()
    }

    /// A client that acknowledges nothing, so that a written push counts as acknowledged.
    fn is_legacy(&self) -> bool {
        let state = self.current_state();
        self.session.is_some() && !state.has_negotiated && !state.has_acked
    }

    /// Whether the connection claims the mail of its member.
    fn serves_member_lane(&self) -> bool {
        self.session.is_none() || self.current_state().has_negotiated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the socket does with these options is tested where it is served.
    #[test]
    fn cm_150_cm_144_sockets_have_the_times_and_lengths_of_the_protocol() {
        let options = socket_options();
        assert_eq!(options.ping_interval, Duration::from_secs(30));
        assert_eq!(options.silence_timeout, Duration::from_secs(75));
        assert_eq!(options.message_bytes_max, 65_536);
    }
}
