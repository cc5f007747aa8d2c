//! Intents of Beam that the server relays: clients that send them, over HTTP or over sockets, and recipients that
//! answer at once.
//!
//! Invariant: an intent counts only if its sender received the result of the recipient. Every frame is signed before the
//! measurement; a client that has none left reports an error.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::Error;
use crate::client::{PAUSE_AFTER_ERROR, RunContext, trouble};
use crate::connection::BenchConnection;
use crate::pace::StartPace;
use crate::plan::{BenchPlan, Workload};
use crate::response::{find, text_member};
use crate::socket::BenchSocket;
use crate::tally::{Op, RunTally};

/// What the recipients write before and after the nonce.
const ANSWER: [&[u8]; 2] = [
    br#"{"type":"result","frame":{"v":"1","success":true,"nonce":""#,
    br#"","timestamp":"2026-01-01T00:00:00.000Z","payload":{"ok":true}}}"#,
];
const NONCE: &[u8] = b"\"nonce\":\"";
const SUCCESS: &[u8] = b"\"success\":true";
const RESULT: &[u8] = b"{\"type\":\"result\"";
const ERROR_CODE: &[u8] = b"\"errorCode\":\"";
const RATE_LIMITED: &[u8] = b"RATE_LIMITED";

/// The role of a client of `relay`, with its index among those of its role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayRole {
    HttpSender(usize),
    SocketSender(usize),
    Recipient(usize),
}

pub(crate) fn roles(plan: &BenchPlan) -> Vec<RelayRole> {
    let sender = if plan.work == Workload::RelaySocket {
        RelayRole::SocketSender
    } else {
        RelayRole::HttpSender
    };
    let recipients = (0..plan.relay.recipients.len()).map(RelayRole::Recipient);
    recipients.chain((0..plan.clients).map(sender)).collect()
}

/// The path of an agent's socket.
pub(crate) fn agent_path(beam_id: &str) -> String {
    format!("/ws?beamId={beam_id}")
}

/// A client of either kind, ready to run.
#[derive(Debug)]
pub(crate) enum RelayClient {
    Sender(Box<IntentSender>),
    Recipient(IntentRecipient),
}

impl RelayClient {
    pub(crate) async fn connect(
        around: &RunContext,
        role: RelayRole,
        tally: Rc<RefCell<RunTally>>,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Connect {
            server: around.plan.target.server.to_string(),
            source,
        };
        let (transport, sender) = match role {
            RelayRole::Recipient(index) => {
                let beam_id = &around.plan.relay.recipients[index];
                let socket = open_socket(around, beam_id).await.map_err(failed)?;
                return Ok(Self::Recipient(IntentRecipient { socket, tally }));
            }
            RelayRole::HttpSender(index) => {
                let connection = BenchConnection::open(around.server).await;
                let authority = around.plan.target.server.authority();
                let head =
                    format!("POST /intents/send HTTP/1.1\r\nHost: {authority}\r\nContent-Length: ");
                let transport = SenderTransport::Http {
                    connection: connection.map_err(failed)?,
                    head: head.into_bytes(),
                    request: Vec::new(),
                };
                (transport, index)
            }
            RelayRole::SocketSender(index) => {
                let beam_id = &around.plan.relay.senders[index].beam_id;
                let socket = open_socket(around, beam_id).await.map_err(failed)?;
                let answer = 0..0;
                (SenderTransport::Socket { socket, answer }, index)
            }
        };
        Ok(Self::Sender(Box::new(IntentSender {
            transport,
            plan: Arc::clone(&around.plan),
            sender,
            next: 0,
            pace: Arc::clone(&around.pace),
            waiting_since: None,
            tally,
        })))
    }

    /// Runs until it is dropped, or until it cannot go on.
    pub(crate) async fn run(self) {
        match self {
            Self::Sender(sender) => sender.run().await,
            Self::Recipient(recipient) => recipient.run().await,
        }
    }
}

/// Opens the socket of an agent and reads the greeting, after which it is connected.
async fn open_socket(around: &RunContext, beam_id: &str) -> io::Result<BenchSocket> {
    let authority = around.plan.target.server.authority();
    let path = agent_path(beam_id);
    let mut socket = BenchSocket::open(around.server, None, &authority, &path).await?;
    socket.message().await?;
    Ok(socket)
}

#[derive(Debug)]
enum SenderTransport {
    Http {
        connection: BenchConnection,
        /// Up to the length of the body.
        head: Vec<u8>,
        request: Vec<u8>,
    },
    Socket {
        socket: BenchSocket,
        answer: Range<usize>,
    },
}

impl SenderTransport {
    /// Sends a frame and waits for its answer; returns whether it is a result.
    async fn exchange(&mut self, frame: &str) -> io::Result<bool> {
        match self {
            Self::Http {
                connection,
                head,
                request,
            } => {
                request.clear();
                request.extend_from_slice(head);
                request.extend_from_slice(frame.len().to_string().as_bytes());
                request.extend_from_slice(b"\r\n\r\n");
                request.extend_from_slice(frame.as_bytes());
                let status = connection.exchange(request).await?;
                Ok(status == 200 && find(connection.body(), SUCCESS).is_some())
            }
            Self::Socket { socket, answer } => {
                *answer = 0..0;
                socket.queue(&[br#"{"type":"intent","frame":"#, frame.as_bytes(), b"}"]);
                socket.flush().await?;
                *answer = socket.message().await?;
                let text = socket.bytes(answer.clone());
                Ok(text.starts_with(RESULT) && find(text, SUCCESS).is_some())
            }
        }
    }

    /// The text of the last answer.
    fn answer(&self) -> &[u8] {
        match self {
            Self::Http { connection, .. } => connection.body(),
            Self::Socket { socket, answer } => socket.bytes(answer.clone()),
        }
    }

    /// A closed connection is opened again by the next exchange; a closed socket stays closed.
    const fn reconnects(&self) -> bool {
        matches!(self, Self::Http { .. })
    }
}

/// Sends one intent after the other, each when the result of the previous one is there.
#[derive(Debug)]
pub(crate) struct IntentSender {
    transport: SenderTransport,
    plan: Arc<BenchPlan>,
    sender: usize,
    /// The index of the next frame.
    next: usize,
    pace: Arc<StartPace>,
    /// When the pending intent was sent.
    waiting_since: Option<Instant>,
    tally: Rc<RefCell<RunTally>>,
}

impl IntentSender {
    async fn run(mut self) {
        let plan = Arc::clone(&self.plan);
        let frames = &plan.relay.senders[self.sender].frames;
        loop {
            let due = self.pace.next().await;
            let Some(frame) = frames.get(self.next) else {
                // Otherwise the rest of the run would look like a slow server.
                return self.fault("no intent is left".to_owned(), b"");
            };
            self.next += 1;
            self.waiting_since = Some(due);
            let exchanged = self.transport.exchange(frame).await;
            self.waiting_since = None;
            let now = Instant::now();
            match exchanged {
                Ok(true) => {
                    let mut tally = self.tally.borrow_mut();
                    tally.done(Op::Relay, due, now);
                    tally.cycle(1, due, now);
                }
                Ok(false) => {
                    let answer = self.transport.answer();
                    self.fault(refusal(answer), answer);
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
                Err(error) => {
                    self.fault(trouble(&error), b"");
                    if !self.transport.reconnects() {
                        return;
                    }
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
            }
        }
    }

    fn fault(&self, what: String, example: &[u8]) {
        let mut tally = self.tally.borrow_mut();
        tally.fault(Op::Relay, what, 1, example, Instant::now());
    }
}

/// The end of the run drops senders that wait; a server that stalls at the end would otherwise look good.
impl Drop for IntentSender {
    fn drop(&mut self) {
        if let Some(since) = self.waiting_since {
            self.tally.borrow_mut().unfinished(since.elapsed());
        }
    }
}

/// Answers every intent that arrives on its socket.
#[derive(Debug)]
pub(crate) struct IntentRecipient {
    socket: BenchSocket,
    tally: Rc<RefCell<RunTally>>,
}

impl IntentRecipient {
    async fn run(mut self) {
        let Err(error) = self.answer_all().await;
        let what = format!("recipient: {}", trouble(&error));
        let mut tally = self.tally.borrow_mut();
        tally.fault(Op::Relay, what, 1, b"", Instant::now());
    }

    async fn answer_all(&mut self) -> io::Result<std::convert::Infallible> {
        let mut nonce = Vec::new();
        loop {
            while let Some(message) = self.socket.received()? {
                let text = self.socket.bytes(message);
                let Some((found, _)) = text_member(text, NONCE) else {
                    let text = String::from_utf8_lossy(text);
                    return Err(io::Error::other(format!("no intent: {text}")));
                };
                nonce.clear();
                nonce.extend_from_slice(found);
                self.socket.queue(&[ANSWER[0], &nonce, ANSWER[1]]);
            }
            self.socket.flush().await?;
            self.socket.fill().await?;
        }
    }
}

/// Why an intent got no result, the same text for the same cause.
fn refusal(answer: &[u8]) -> String {
    match text_member(answer, ERROR_CODE) {
        Some((RATE_LIMITED, _)) => {
            "RATE_LIMITED; raise BEAM_RATE_LIMIT_PER_MIN of the server".to_owned()
        }
        Some((code, _)) => String::from_utf8_lossy(code).into_owned(),
        None => "unexpected answer".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_answer_of_a_recipient_is_a_result_with_the_nonce() {
        let text = [ANSWER[0], b"n-1", ANSWER[1]].concat();
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["type"], "result");
        assert_eq!(value["frame"]["nonce"], "n-1");
        assert_eq!(value["frame"]["success"], true);
    }

    #[test]
    fn a_refusal_names_its_code_and_the_limit_to_raise() {
        let refused = |code: &str| refusal(format!(r#"{{"errorCode":"{code}"}}"#).as_bytes());
        assert_eq!(refused("OFFLINE"), "OFFLINE");
        assert!(refused("RATE_LIMITED").contains("BEAM_RATE_LIMIT_PER_MIN"));
        assert_eq!(refusal(b"{}"), "unexpected answer");
    }
}
