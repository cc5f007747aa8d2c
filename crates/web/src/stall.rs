//! Closes the connection of a client that does not read its response.
//!
//! A client that sends requests and never reads a response would keep its connection and its slot forever: hyper
//! bounds the time to receive a head, not the time to send a response. So a blocked write fails when the client reads
//! less than [`TAKEN_BYTES_MIN`] within the time limit.
//!
//! Invariant: a timer starts only when a write blocks. This layer is below TLS, where every written byte is sent;
//! above TLS, a partly written record looks like no progress.

use std::io::{self, Write as _};
use std::net;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The bytes that a client must read within the limit: about 550 bytes per second with the default of 30 s. Less
/// would let a client hold a large response for days.
const TAKEN_BYTES_MIN: usize = 16 << 10;

/// A socket whose writes fail when its client reads too slowly.
#[derive(Debug)]
pub(super) struct StallTimeoutStream {
    socket: TcpStream,
    limit: Duration,
    /// Set while a write is blocked.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The bytes read since then.
    taken: usize,
}

impl StallTimeoutStream {
    pub(super) const fn new(socket: TcpStream, limit: Duration) -> Self {
        Self {
            socket,
            limit,
            deadline: None,
            taken: 0,
        }
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Passes a finished write of `offered` bytes on and limits a blocked one.
    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        offered: usize,
        write_now: impl FnOnce(net::TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            if let Ok(written) = &written {
                self.took(*written, offered);
            }
            return Poll::Ready(written);
        }
        if let Some(deadline) = &mut self.deadline {
            ready!(deadline.as_mut().poll(cx));
        }
        // The kernel reports a full socket as writable only when a large part of its buffer, possibly megabytes, is
        // free. A slow reader may not get that far in time, so the free space counts: none when the wait begins, and
        // how much when it ends.
        let attempt = second_handle(&self.socket).ok().map(write_now);
        match attempt {
            Some(Ok(written)) => {
                self.took(written, offered);
                if self.deadline.take().is_some() {
                    return Poll::Ready(Err(stopped_reading()));
                }
                return Poll::Ready(Ok(written));
            }
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                return Poll::Ready(Err(error));
            }
            Some(Err(_)) | None => {}
        }
        if self.deadline.take().is_some() {
            return Poll::Ready(Err(stopped_reading()));
        }
        self.taken = 0;
        let deadline = self.deadline.insert(Box::pin(sleep(self.limit)));
        // Polled so that it wakes this task; an expired timer is handled at the next poll.
        if deadline.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ends the wait if the client has read enough, or everything.
    fn took(&mut self, written: usize, offered: usize) {
        if self.deadline.is_none() {
            return;
        }
        self.taken = self.taken.saturating_add(written);
        if written >= offered || self.taken >= TAKEN_BYTES_MIN {
            self.deadline = None;
        }
    }
}

fn stopped_reading() -> io::Error {
    let message = "the client reads too slowly";
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// The same socket without tokio's cached readiness; it does not block either.
fn second_handle(socket: &TcpStream) -> io::Result<net::TcpStream> {
    Ok(socket.as_fd().try_clone_to_owned()?.into())
}

impl AsyncWrite for StallTimeoutStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.watch(cx, written, bytes.len(), |mut socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, slices);
        let offered = slices.iter().map(|slice| slice.len()).sum();
        this.watch(cx, written, offered, |mut socket| {
            socket.write_vectored(slices)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl AsyncRead for StallTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}
