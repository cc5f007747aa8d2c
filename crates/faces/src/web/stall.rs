//! Gives up on a client that takes nothing any more.
//!
//! A client that sends request after request and never reads an answer would keep its connection, and its place under
//! the cap, for ever: hyper bounds the time to send a head, not the time to take an answer. So a write that waits
//! without the client taking a single byte fails after a while, and the connection with it.
//!
//! Invariant: a timer runs only while a write waits. It sits below TLS, where a byte written is a byte the client will
//! be sent; above, a record half written looks like no progress at all. However slowly a client reads, it is kept as
//! long as it reads.

use std::io::{self, Write as _};
use std::net;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// A socket whose writes fail once its client has stopped taking them.
#[derive(Debug)]
pub(super) struct Unstalled {
    socket: TcpStream,
    limit: Duration,
    /// Present while a write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Unstalled {
    pub(super) const fn new(socket: TcpStream, limit: Duration) -> Self {
        Self {
            socket,
            limit,
            deadline: None,
        }
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Passes a finished write on and holds a waiting one to its deadline.
    fn watch(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        write_now: impl FnOnce(net::TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        if let Some(deadline) = &mut self.deadline {
            ready!(deadline.as_mut().poll(cx));
        }
        // The kernel calls a full socket writable again only when a good part of its buffer, which may be megabytes,
        // is free. A slow reader may not get that far in time, so what counts is whether there is room for any byte:
        // none when the wait begins, and still none when it ends.
        // Without a handle, when files have run out, tokio's word must do.
        let attempt = second_handle(&self.socket).ok().map(write_now);
        if let Some(written) = attempt
            && !matches!(&written, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        {
            self.deadline = None;
            return Poll::Ready(written);
        }
        if self.deadline.take().is_some() {
            let message = "the client has stopped reading";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
        }
        let deadline = self.deadline.insert(Box::pin(sleep(self.limit)));
        // Polled so that it wakes this task; one that is over already says so at the next turn.
        if deadline.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// The same socket without tokio's memory of whether it is writable; it does not block either.
fn second_handle(socket: &TcpStream) -> io::Result<net::TcpStream> {
    Ok(socket.as_fd().try_clone_to_owned()?.into())
}

impl AsyncWrite for Unstalled {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.watch(cx, written, |mut socket| socket.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write_vectored(cx, slices);
        this.watch(cx, written, |mut socket| socket.write_vectored(slices))
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

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}
