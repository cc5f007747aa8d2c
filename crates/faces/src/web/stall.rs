//! Gives up on a client that takes too little of its answer.
//!
//! A client that sends request after request and never reads an answer would keep its connection, and its place under
//! the cap, for ever: hyper bounds the time to send a head, not the time to take an answer. So writes that wait while the
//! client takes less than [`TAKEN_BYTES_MIN`] in the time limit fail, and the connection with them.
//!
//! Invariant: a timer begins only when a write waits. It sits below TLS, where a byte written is a byte the client will
//! be sent; above, a record half written looks like no progress at all.

use std::io::{self, Write as _};
use std::net;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// What a client must take within the limit while an answer waits for it: about 550 bytes a second with the default of
/// 30 s. Less would let one hold a large answer for days.
const TAKEN_BYTES_MIN: usize = 16 << 10;

/// A socket whose writes fail once its client has nearly stopped taking them.
#[derive(Debug)]
pub(super) struct StallTimeoutStream {
    socket: TcpStream,
    limit: Duration,
    /// Present from the moment a write waits until the client has taken enough.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Since then.
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

    /// Passes a finished write of `offered` bytes on and holds a waiting one to its deadline.
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
        // The kernel calls a full socket writable again only when a good part of its buffer, which may be megabytes,
        // is free. A slow reader may not get that far in time, so what counts is how much there is room for: none when
        // the wait begins, and how much when it ends.
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
        // Polled so that it wakes this task; one that is over already says so at the next turn.
        if deadline.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Ends the wait if the client has taken enough, or all that there was.
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
    let message = "the client has nearly stopped reading";
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// The same socket without tokio's memory of whether it is writable; it does not block either.
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
