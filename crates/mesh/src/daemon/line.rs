//! An open connection to the broker, for those who send over it and wait for answers.
//!
//! Invariant: everybody who waits gets an answer or learns that the connection is closed; nothing waits for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;

use super::handshake::BrokerTerms;
use crate::frame::{AckFrame, BrokerFrame, ClientFrame, ErrorFrame, Framed, PushFrame, SendFrame};

/// How long the broker has for an answer to a question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Frames that wait for the socket.
const OUTGOING_MAX: usize = 64;

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LineError {
    #[error("the broker is not connected")]
    Closed,
    #[error("the broker did not answer in time")]
    NoAnswer,
    #[error("{}: {}", .0.code, .0.message)]
    Refused(ErrorFrame),
}

type LineAnswer = Result<BrokerFrame, ErrorFrame>;

#[derive(Default)]
struct Waiting {
    acks: HashMap<String, oneshot::Sender<AckFrame>>,
    answers: HashMap<String, oneshot::Sender<LineAnswer>>,
    is_closed: bool,
}

/// One connection from its negotiation to its end.
pub(super) struct BrokerLine {
    pub(super) terms: BrokerTerms,
    outgoing: mpsc::Sender<Message>,
    waiting: Mutex<Waiting>,
    closed: watch::Sender<bool>,
    hung_up: watch::Sender<bool>,
    requests: AtomicU64,
    /// The name of the member, if it was changed over this connection.
    renamed: OnceLock<String>,
    /// The wall clock when the broker accepted the hello, which proves that both clocks agree.
    agreed_ms: i64,
    since: Instant,
}

impl BrokerLine {
    /// The line, and the messages that its task writes to the socket. `agreed_ms` is the time of the wall clock, in milliseconds.
    pub(super) fn new(terms: BrokerTerms, agreed_ms: i64) -> (Self, mpsc::Receiver<Message>) {
        let (outgoing, messages) = mpsc::channel(OUTGOING_MAX);
        let line = Self {
            terms,
            outgoing,
            waiting: Mutex::default(),
            closed: watch::Sender::new(false),
            hung_up: watch::Sender::new(false),
            requests: AtomicU64::new(0),
            renamed: OnceLock::new(),
            agreed_ms,
            since: Instant::now(),
        };
        (line, messages)
    }

    /// The time on which daemon and broker agree, in milliseconds since 1970. A wall clock that is set during the connection
    /// does not change it.
    pub(super) fn now_ms(&self) -> i64 {
        let elapsed_ms = i64::try_from(self.since.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.agreed_ms.saturating_add(elapsed_ms)
    }

    /// The name that peers see.
    pub(super) fn display_name(&self) -> &str {
        let renamed = self.renamed.get();
        renamed.map_or(&self.terms.display_name, String::as_str)
    }

    /// The broker has changed the name of the member.
    pub(super) fn rename(&self, name: &str) {
        // A connection announces one name.
        let _ = self.renamed.set(name.to_owned());
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message. The receiver gets its acknowledgement, or an error when the connection is closed.
    pub(super) async fn send_message(
        &self,
        frame: SendFrame,
    ) -> Result<oneshot::Receiver<AckFrame>, LineError> {
        let id = frame.id.clone().unwrap_or_default();
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.is_closed {
                return Err(LineError::Closed);
            }
            waiting.acks.insert(id, sender);
        }
        self.write(&ClientFrame::from(frame), None).await?;
        Ok(receiver)
    }

    /// The acknowledgement of that message is not awaited any more.
    pub(super) fn forget_message(&self, id: &str) {
        self.waiting().acks.remove(id);
    }

    /// Sends a frame that has no answer.
    pub(super) async fn notify(&self, frame: ClientFrame) -> Result<(), LineError> {
        self.write(&frame, None).await
    }

    /// Sends a frame and waits for its answer.
    pub(super) async fn ask(&self, frame: ClientFrame) -> Result<BrokerFrame, LineError> {
        self.ask_after(None, frame).await
    }

    /// Sends a frame that is answered only if it fails, and one that is always answered. The broker works in their order, so
    /// the answer to the second says that the first succeeded.
    pub(super) async fn ask_after(
        &self,
        first: Option<ClientFrame>,
        last: ClientFrame,
    ) -> Result<BrokerFrame, LineError> {
        let (first_id, refused) = self.expect_answer()?;
        let (last_id, answer) = self.expect_answer()?;
        let asked = async {
            if let Some(first) = &first {
                self.write(first, Some(&first_id)).await?;
            }
            self.write(&last, Some(&last_id)).await?;
            tokio::select! {
                biased;
                refused = refused => answered(refused),
                answer = answer => match answered(answer) {
                    // The broker took the first frame, or has not answered it yet: nobody knows.
                    Err(LineError::Refused(_)) if first.is_some() => Err(LineError::NoAnswer),
                    answered => answered,
                },
            }
        };
        let found = timeout(ANSWER_TIMEOUT, asked).await;
        let mut waiting = self.waiting();
        waiting.answers.remove(&first_id);
        waiting.answers.remove(&last_id);
        found.unwrap_or(Err(LineError::NoAnswer))
    }

    fn expect_answer(&self) -> Result<(String, oneshot::Receiver<LineAnswer>), LineError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = format!("r{number}");
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(LineError::Closed);
        }
        waiting.answers.insert(id.clone(), sender);
        Ok((id, receiver))
    }

    async fn write(&self, frame: &ClientFrame, req_id: Option<&str>) -> Result<(), LineError> {
        let message = Message::text(frame.to_text(req_id));
        self.outgoing
            .send(message)
            .await
            .map_err(|_| LineError::Closed)
    }

    /// Hands a frame to its waiter. Returns a message for the inbox or an event of the broker.
    pub(super) fn receive(&self, framed: Framed<BrokerFrame>) -> Option<PushFrame> {
        match framed.frame {
            BrokerFrame::Push(push) => return Some(*push),
            BrokerFrame::Ack(ack) => {
                let id = ack.id.clone().unwrap_or_default();
                if let Some(waiter) = self.waiting().acks.remove(&id) {
                    // Its waiter may have given up.
                    let _ = waiter.send(*ack);
                }
            }
            BrokerFrame::Error(error) => {
                let id = framed.req_id.clone().or_else(|| error.id.clone());
                let waiter = id.and_then(|id| self.waiting().answers.remove(&id));
                if let Some(waiter) = waiter {
                    let _ = waiter.send(Err(*error));
                } else {
                    tracing::warn!(
                        code = error.code,
                        message = error.message,
                        "the broker reports an error"
                    );
                }
            }
            frame @ (BrokerFrame::HelloAck(_)
            | BrokerFrame::FeatureResponse(_)
            | BrokerFrame::MessageStatus(_)
            | BrokerFrame::PeersList(_)
            | BrokerFrame::TopicCreated(_)
            | BrokerFrame::TopicList(_)
            | BrokerFrame::TopicMembers(_)
            | BrokerFrame::TopicHistory(_)
            | BrokerFrame::StateChange(_)
            | BrokerFrame::StateResult(_)
            | BrokerFrame::StateList(_)
            | BrokerFrame::GrantsList(_)
            | BrokerFrame::Unknown(_)) => {
                let id = framed.req_id.unwrap_or_default();
                if let Some(waiter) = self.waiting().answers.remove(&id) {
                    let _ = waiter.send(Ok(frame));
                }
            }
        }
        None
    }

    /// Ends the connection; another one is made. Nothing is sent over this one any more.
    pub(super) fn hang_up(&self) {
        self.close();
        self.hung_up.send_replace(true);
    }

    pub(super) async fn until_hung_up(&self) {
        let mut hung_up = self.hung_up.subscribe();
        // The sender is a part of this line, so it is there.
        let _ = hung_up.wait_for(|hung_up| *hung_up).await;
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.acks.clear();
        waiting.answers.clear();
        drop(waiting);
        self.closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) async fn until_closed(&self) {
        let mut closed = self.closed.subscribe();
        // The sender is a part of this line, so it is there.
        let _ = closed.wait_for(|closed| *closed).await;
    }
}

impl std::fmt::Debug for BrokerLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BrokerLine")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}

fn answered(
    answer: Result<LineAnswer, oneshot::error::RecvError>,
) -> Result<BrokerFrame, LineError> {
    match answer {
        Ok(Ok(frame)) => Ok(frame),
        Ok(Err(error)) => Err(LineError::Refused(error)),
        Err(_) => Err(LineError::Closed),
    }
}
