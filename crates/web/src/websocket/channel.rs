//! The messages between a socket's driver and the rest of the program.
//!
//! Invariant: both queues are bounded. Sending never waits: a full queue is an error, and its sender decides. Receiving
//! is slowed down instead: while the waiting messages are at their limit, the driver reads nothing from the client. A
//! message that is being written stays in the queue and counts until its last byte is written.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::Options;
use super::close::{CloseCode, CloseReason};
use super::message_reader::SocketMessage;
use super::outgoing::Payload;

/// An empty queue with more places than this gives its memory back.
const PLACES_KEPT: usize = 16;

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefusal {
    /// The client reads too slowly: messages or bytes that wait are at their limit.
    #[error("too many messages wait for the client")]
    Full,
    #[error("the socket is closed")]
    Closed,
}

#[derive(Debug)]
pub(super) struct SocketChannel {
    options: Options,
    state: Mutex<ChannelState>,
    closed: Notify,
    /// A message was written, or nothing will be.
    written: Notify,
}

#[derive(Debug, Default)]
struct ChannelState {
    /// To the client; the first one may be partly written.
    queue: VecDeque<Payload>,
    queue_bytes: usize,
    /// From the client.
    waiting: VecDeque<SocketMessage>,
    waiting_bytes: usize,
    /// Nothing more can be queued.
    is_closed: bool,
    /// Nothing more will be received.
    is_ended: bool,
    /// The receiver was dropped; messages are discarded.
    is_unread: bool,
    /// Requested by a sender, not yet seen by the driver.
    close: Option<CloseReason>,
    driver: Option<Waker>,
    receiver: Option<Waker>,
}

impl SocketChannel {
    pub(super) fn new(options: Options) -> (Arc<Self>, SocketSender, SocketMessages) {
        let channel = Arc::new(Self {
            options,
            state: Mutex::default(),
            closed: Notify::new(),
            written: Notify::new(),
        });
        let sender = SocketSender(Arc::clone(&channel));
        let messages = SocketMessages(Arc::clone(&channel));
        (channel, sender, messages)
    }

    fn lock(&self) -> MutexGuard<'_, ChannelState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver is woken by whatever happens from now on. Returns a requested close once.
    pub(super) fn watch(&self, waker: &Waker) -> Option<CloseReason> {
        let mut state = self.lock();
        match &mut state.driver {
            Some(known) => known.clone_from(waker),
            none @ None => *none = Some(waker.clone()),
        }
        state.close.take()
    }

    /// The message to write next. It stays queued until [`Self::written`].
    pub(super) fn front(&self) -> Option<Payload> {
        self.lock().queue.front().cloned()
    }

    pub(super) fn written(&self) {
        let mut state = self.lock();
        // The queue may have been discarded.
        if let Some(payload) = state.queue.pop_front() {
            state.queue_bytes -= payload.as_bytes().len();
        }
        give_back(&mut state.queue);
        drop(state);
        self.written.notify_waiters();
    }

    /// Whether a received message would find room.
    pub(super) fn has_room(&self) -> bool {
        let state = self.lock();
        state.waiting.len() < self.options.waiting_messages_max
            && state.waiting_bytes < self.options.message_bytes_max
    }

    /// One read may contain more messages than there is room; they are kept all the same.
    pub(super) fn deliver(&self, message: SocketMessage) {
        let mut state = self.lock();
        if state.is_unread || state.is_ended {
            return;
        }
        state.waiting_bytes += message.length();
        state.waiting.push_back(message);
        wake(state.receiver.take(), state);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Nothing is queued or received any more. What waits for the handler can still be received.
    pub(super) fn begin_close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.is_ended = true;
        wake(state.receiver.take(), state);
        self.closed.notify_waiters();
    }

    pub(super) fn discard_queue(&self) {
        let mut state = self.lock();
        state.queue = VecDeque::new();
        state.queue_bytes = 0;
        drop(state);
        self.written.notify_waiters();
    }

    /// The stream is gone.
    pub(super) fn end(&self) {
        self.begin_close();
        self.discard_queue();
    }
}

/// Wakes outside of the lock.
fn wake(waker: Option<Waker>, state: MutexGuard<'_, ChannelState>) {
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn give_back<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && queue.capacity() > PLACES_KEPT {
        *queue = VecDeque::new();
    }
}

/// Sends to one client. Clones send to the same one.
#[derive(Clone, Debug)]
pub struct SocketSender(Arc<SocketChannel>);

impl SocketSender {
    /// Queues a text message without waiting. An `Arc<str>` is shared, not copied, so that one message can be sent to
    /// many clients. An empty queue takes a message of any length.
    pub fn try_send(&self, text: impl Into<Arc<str>>) -> Result<(), SendRefusal> {
        self.queue(Payload::Text(text.into()))
    }

    /// Queues a binary message, as [`Self::try_send`].
    pub fn try_send_binary(&self, bytes: impl Into<Arc<[u8]>>) -> Result<(), SendRefusal> {
        self.queue(Payload::Binary(bytes.into()))
    }

    fn queue(&self, payload: Payload) -> Result<(), SendRefusal> {
        let limits = &self.0.options;
        let mut state = self.0.lock();
        if state.is_closed {
            return Err(SendRefusal::Closed);
        }
        let bytes = state.queue_bytes.saturating_add(payload.as_bytes().len());
        let is_full =
            state.queue.len() >= limits.queue_messages_max || bytes > limits.queue_bytes_max;
        if is_full && !state.queue.is_empty() {
            return Err(SendRefusal::Full);
        }
        state.queue_bytes = bytes;
        state.queue.push_back(payload);
        wake(state.driver.take(), state);
        Ok(())
    }

    /// Closes the socket after the messages that are queued, within [`Options::close_timeout`]. Only the first close of
    /// a socket counts. The reason is cut to 123 bytes.
    pub fn close(&self, code: CloseCode, reason: &str) {
        let mut state = self.0.lock();
        if state.is_closed {
            return;
        }
        state.is_closed = true;
        state.close = Some(CloseReason::new(code, reason));
        wake(state.driver.take(), state);
        self.0.closed.notify_waiters();
    }

    /// Closes the socket and discards the messages that are queued: for a client that reads too slowly.
    pub fn close_now(&self, code: CloseCode, reason: &str) {
        self.close(code, reason);
        self.0.discard_queue();
    }

    /// Waits until at most this many messages wait for the client. False if the socket is closed, so that they may have been
    /// discarded instead of written.
    pub async fn written_to(&self, messages_max: usize) -> bool {
        loop {
            let written = self.0.written.notified();
            let mut written = std::pin::pin!(written);
            // Registered before the look, so that no message is missed.
            written.as_mut().enable();
            {
                let state = self.0.lock();
                if state.queue.len() <= messages_max {
                    return !state.is_closed;
                }
            }
            written.await;
        }
    }

    /// Whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Completes when nothing can be sent any more.
    pub async fn closed(&self) {
        let closed = self.0.closed.notified();
        let mut closed = std::pin::pin!(closed);
        // Registered before the look, so that no close is missed.
        closed.as_mut().enable();
        if !self.is_closed() {
            closed.await;
        }
    }
}

/// Receives the messages of one client, in order.
#[derive(Debug)]
pub struct SocketMessages(Arc<SocketChannel>);

impl SocketMessages {
    /// The next message; `None` when the socket is closed. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<SocketMessage> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<SocketMessage>> {
        let mut state = self.0.lock();
        let Some(message) = state.waiting.pop_front() else {
            if state.is_ended {
                return Poll::Ready(None);
            }
            state.receiver = Some(cx.waker().clone());
            return Poll::Pending;
        };
        state.waiting_bytes -= message.length();
        give_back(&mut state.waiting);
        // The driver may wait for room.
        wake(state.driver.take(), state);
        Poll::Ready(Some(message))
    }
}

impl Drop for SocketMessages {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_unread = true;
        state.waiting = VecDeque::new();
        state.waiting_bytes = 0;
        wake(state.driver.take(), state);
    }
}

#[cfg(test)]
mod tests;
