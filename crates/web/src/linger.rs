//! Closes a connection so that the last response reaches the client.
//!
//! When a request is refused before its body was read, the client is still sending. Closing a socket with unread data
//! makes the kernel send a reset, and the client may lose the response in transit. So after the write side is closed,
//! further data is read and discarded for a bounded time and a bounded number of bytes.
//!
//! Invariant: a connection without unread data closes at once; none lingers beyond the bounds. The wrapper also holds
//! the slot of the connection, so an upgraded connection counts until its stream is dropped.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use super::connections::{Activity, ConnectionSlot};
use super::presence::{OverTcp, Presence};
use super::unreadable::ReplacementResponse;

/// The limit without data from the client.
const LINGER: Duration = Duration::from_secs(2);
/// The limit in total.
const LINGER_MAX: Duration = Duration::from_secs(10);
const DISCARDED_BYTES_MAX: usize = 16 << 20;
const DISCARD_CHUNK_BYTES: usize = 16 << 10;

/// Shared between the requests of a connection and its stream: whether the client may still be sending an unread
/// body.
#[derive(Debug, Clone, Default)]
pub(super) struct UnreadBody(Arc<AtomicBool>);

impl UnreadBody {
    pub(super) fn set(&self, unread: bool) {
        // Ordering: written and read by the one task of the connection.
        self.0.store(unread, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that lingers before it closes.
#[derive(Debug)]
pub(super) struct LingeringStream<T> {
    stream: T,
    unread_body: UnreadBody,
    presence: Presence,
    unreadable_body: &'static str,
    replacement: Option<ReplacementResponse>,
    closing: Closing,
    activity: Arc<Activity>,
    _slot: ConnectionSlot,
}

#[derive(Debug)]
enum Closing {
    NotYet,
    Discarding {
        /// Ends when no data arrives for a while, at the latest at `latest`.
        until: Pin<Box<Sleep>>,
        latest: Instant,
        bytes_left: usize,
    },
    Done,
}

impl<T> LingeringStream<T> {
    pub(super) fn new(
        stream: T,
        unread_body: UnreadBody,
        presence: Presence,
        unreadable_body: &'static str,
        slot: ConnectionSlot,
    ) -> Self {
        Self {
            stream,
            unread_body,
            presence,
            unreadable_body,
            replacement: None,
            closing: Closing::NotYet,
            activity: slot.activity(),
            _slot: slot,
        }
    }
}

impl<T: AsyncWrite + Unpin> LingeringStream<T> {
    /// Whether a replacement is written for `bytes`, or partly written already. A WebSocket has no responses, but its
    /// messages may look like one.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        if self.activity.is_upgraded() {
            return false;
        }
        if self.replacement.is_none() {
            self.replacement = ReplacementResponse::of(bytes, self.unreadable_body);
        }
        self.replacement.is_some()
    }

    /// Reports `length` bytes as written once the replacement is written.
    fn write_replacement(
        &mut self,
        cx: &mut Context<'_>,
        length: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(replacement) = &mut self.replacement {
            ready!(replacement.poll_write(&mut self.stream, cx))?;
        }
        self.replacement = None;
        Poll::Ready(Ok(length))
    }
}

impl<T: AsyncRead + AsyncWrite + OverTcp + Unpin> AsyncWrite for LingeringStream<T> {
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.closing {
                Closing::NotYet => {
                    ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
                    this.closing = Closing::Discarding {
                        until: Box::pin(sleep(LINGER)),
                        latest: Instant::now() + LINGER_MAX,
                        bytes_left: DISCARDED_BYTES_MAX,
                    };
                }
                Closing::Discarding {
                    until,
                    latest,
                    bytes_left,
                } => {
                    match discard(&mut this.stream, cx) {
                        // Data was in transit, so more may follow.
                        Poll::Ready(Ok(bytes @ 1..)) if bytes < *bytes_left => {
                            *bytes_left -= bytes;
                            until.as_mut().reset((Instant::now() + LINGER).min(*latest));
                            this.unread_body.set(true);
                        }
                        Poll::Pending if this.unread_body.get() => {
                            ready!(until.as_mut().poll(cx));
                            this.closing = Closing::Done;
                        }
                        Poll::Ready(_) | Poll::Pending => this.closing = Closing::Done,
                    }
                }
                Closing::Done => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.replaces(bytes) {
            return this.write_replacement(cx, bytes.len());
        }
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(head) = slices.first()
            && this.replaces(head)
        {
            return this.write_replacement(cx, head.len());
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper calls this at the end of every poll, so the client of a waiting request is checked here.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.presence.look(cx, self.stream.tcp());
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for LingeringStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.activity.reads();
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

/// Reads once and discards the data; returns the number of bytes, 0 at the end of the stream.
fn discard<T>(stream: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
where
    T: AsyncRead + Unpin,
{
    let mut chunk = [0; DISCARD_CHUNK_BYTES];
    let mut buffer = ReadBuf::new(&mut chunk);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    Poll::Ready(Ok(buffer.filled().len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{ConnectionLimits, Connections};

    #[test]
    fn a_part_of_a_message_that_looks_like_a_response_is_not_replaced() {
        let connections = Connections::new(ConnectionLimits {
            max: 1,
            per_client_max: 1,
            sockets_max: 1,
        });
        let slot = connections.take([192, 0, 2, 1].into(), false).unwrap();
        let activity = slot.activity();
        let (unread, presence) = (UnreadBody::default(), Presence::default());
        let mut stream = LingeringStream::new(tokio::io::sink(), unread, presence, "{}", slot);
        let bare = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        assert!(activity.begin(false));
        let socket = activity.upgrade().unwrap();
        assert!(!stream.replaces(bare));
        drop(socket);
        assert!(stream.replaces(bare));
    }
}
