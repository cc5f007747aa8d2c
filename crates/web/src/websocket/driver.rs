//! Moves frames between the stream of a socket and its channel, and closes it in time.
//!
//! Invariant: one poll drives everything, so a message that cannot be written does not keep control frames of the
//! client from being read. Each wait has a limit: `SocketTimers` holds the instants. After the closing frame is sent,
//! further data of the client is discarded until its own closing frame, so that the kernel does not answer it with a
//! reset that would make the client lose ours.

mod timers;

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Options;
use super::channel::SocketChannel;
use super::close::{CloseCode, CloseReason};
use super::frame::Opcode;
use super::message_reader::{MessageReader, Received};
use super::outgoing::OutgoingFrame;
use timers::{SocketTimers, TimerEvent};

/// Read at once, into the stack: an idle socket has no buffer.
const CHUNK_BYTES: usize = 4 << 10;

/// Why the stream is no longer used.
#[derive(Debug)]
pub(super) enum SocketEnd {
    /// By the closing handshake, or as far as the client took part in it.
    Closed(CloseReason),
    /// The client closed the connection without a closing frame.
    Lost,
    Failed(io::Error),
    /// The client read nothing for too long.
    Stalled,
}

impl fmt::Display for SocketEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(CloseReason { code, text }) => {
                let code = code.map_or(0, |CloseCode(code)| code);
                write!(f, "closed with {code} {text:?}")
            }
            Self::Lost => f.write_str("the client disconnected"),
            Self::Failed(error) => error.fmt(f),
            Self::Stalled => f.write_str("the client read nothing for too long"),
        }
    }
}

#[derive(Debug)]
pub(super) struct SocketDriver<T> {
    stream: T,
    channel: Arc<SocketChannel>,
    reader: MessageReader,
    writing: Option<OutgoingFrame>,
    is_unflushed: bool,
    /// The answer to the latest ping; earlier ones need none.
    pong: Option<Vec<u8>>,
    is_ping_due: bool,
    timers: SocketTimers,
    control_frames: usize,
    control_frames_max: usize,
    closing: Option<ClosingHandshake>,
}

#[derive(Debug)]
struct ClosingHandshake {
    reason: CloseReason,
    step: ClosingStep,
    /// The client has sent its closing frame, or it cannot be recognised any more.
    is_client_done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClosingStep {
    SendingQueue,
    SendingFrame,
    /// For the closing frame of the client.
    Waiting,
    ShuttingDown,
}

/// `Ready(Ok(()))` means progress; `Pending`, that nothing can be done now.
type Progress = Poll<Result<(), SocketEnd>>;

impl<T> SocketDriver<T>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Must be called inside a tokio runtime.
    pub(super) fn new(stream: T, channel: Arc<SocketChannel>, options: &Options) -> Self {
        Self {
            stream,
            channel,
            reader: MessageReader::new(options),
            writing: None,
            is_unflushed: false,
            pong: None,
            is_ping_due: false,
            timers: SocketTimers::new(options),
            control_frames: 0,
            control_frames_max: options.control_frames_max,
            closing: None,
        }
    }

    /// Sends what is queued, then the closing frame. Only the first close counts.
    fn close(&mut self, reason: CloseReason) {
        if self.closing.is_some() {
            return;
        }
        self.closing = Some(ClosingHandshake {
            reason,
            step: ClosingStep::SendingQueue,
            is_client_done: false,
        });
        self.reader.skip();
        self.pong = None;
        self.is_ping_due = false;
        self.timers.begin_close();
        self.channel.begin_close();
    }

    /// Completes when the stream is to be dropped.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SocketEnd> {
        let end = ready!(self.poll_until_end(cx));
        self.channel.end();
        Poll::Ready(end)
    }

    fn poll_until_end(&mut self, cx: &mut Context<'_>) -> Poll<SocketEnd> {
        if let Some(reason) = self.channel.watch(cx.waker()) {
            self.close(reason);
        }
        loop {
            let steps = [
                Self::poll_read,
                Self::poll_write,
                Self::poll_closing,
                Self::poll_timers,
            ];
            let mut progressed = false;
            for step in steps {
                match step(self, cx) {
                    Poll::Ready(Err(end)) => return Poll::Ready(end),
                    Poll::Ready(Ok(())) => progressed = true,
                    Poll::Pending => {}
                }
            }
            if !progressed {
                return Poll::Pending;
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Progress {
        match &self.closing {
            Some(closing) if closing.is_client_done => return Poll::Pending,
            None if !self.channel.has_room() => {
                // The handler is slow, not the client.
                self.timers.heard();
                return Poll::Pending;
            }
            Some(_) | None => {}
        }
        let mut chunk = [MaybeUninit::uninit(); CHUNK_BYTES];
        let mut chunk = ReadBuf::uninit(&mut chunk);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut chunk));
        read.map_err(SocketEnd::Failed)?;
        if chunk.filled().is_empty() {
            return Poll::Ready(Err(match self.closing.take() {
                Some(closing) => SocketEnd::Closed(closing.reason),
                None => SocketEnd::Lost,
            }));
        }
        self.timers.heard();
        self.take(chunk.filled());
        Poll::Ready(Ok(()))
    }

    fn take(&mut self, mut input: &[u8]) {
        loop {
            match self.reader.next(&mut input) {
                Ok(None) => return,
                Ok(Some(Received::Message(message))) => self.channel.deliver(message),
                Ok(Some(Received::Ping(payload))) => {
                    self.pong = Some(payload);
                    self.count_control_frame();
                }
                Ok(Some(Received::Pong)) => self.count_control_frame(),
                Ok(Some(Received::Close(reason))) => {
                    if self.closing.is_none() {
                        // The client is not interested in what is queued.
                        self.channel.discard_queue();
                    }
                    return self.close_without_answer(reason);
                }
                Err(reason) if self.reader.is_framing_lost() => {
                    return self.close_without_answer(reason);
                }
                Err(reason) => self.close(reason),
            }
        }
    }

    fn count_control_frame(&mut self) {
        self.control_frames += 1;
        if self.control_frames > self.control_frames_max {
            let why = "Too many control frames";
            self.close(CloseReason::new(CloseCode::POLICY_VIOLATION, why));
        }
    }

    fn close_without_answer(&mut self, reason: CloseReason) {
        self.close(reason);
        if let Some(closing) = &mut self.closing {
            closing.is_client_done = true;
        }
    }

    /// Writes frames until there is none or the stream is blocked.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Progress {
        loop {
            if self.writing.is_none() {
                self.writing = self.next_frame();
            }
            let Some(frame) = &mut self.writing else {
                break;
            };
            let Poll::Ready(written) = frame.poll_write(&mut self.stream, cx) else {
                self.timers.write_blocked();
                return Poll::Pending;
            };
            written.map_err(SocketEnd::Failed)?;
            self.timers.write_progressed();
            self.is_unflushed = true;
            if frame.is_written() {
                if !frame.opcode().is_control() {
                    self.channel.written();
                }
                self.writing = None;
            }
        }
        if self.is_unflushed {
            let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx) else {
                self.timers.write_blocked();
                return Poll::Pending;
            };
            flushed.map_err(SocketEnd::Failed)?;
            self.timers.write_progressed();
            self.is_unflushed = false;
        }
        Poll::Pending
    }

    fn next_frame(&mut self) -> Option<OutgoingFrame> {
        if let Some(payload) = self.pong.take() {
            return Some(OutgoingFrame::control(Opcode::Pong, &payload));
        }
        if std::mem::take(&mut self.is_ping_due) {
            return Some(OutgoingFrame::control(Opcode::Ping, &[]));
        }
        let may_send = self
            .closing
            .as_ref()
            .is_none_or(|closing| closing.step == ClosingStep::SendingQueue);
        if !may_send {
            return None;
        }
        if let Some(payload) = self.channel.front() {
            return Some(OutgoingFrame::message(payload));
        }
        let closing = self.closing.as_mut()?;
        closing.step = ClosingStep::SendingFrame;
        Some(OutgoingFrame::control(
            Opcode::Close,
            &closing.reason.payload(),
        ))
    }

    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Progress {
        let Some(closing) = &mut self.closing else {
            return Poll::Pending;
        };
        if closing.step == ClosingStep::SendingFrame && self.writing.is_none() && !self.is_unflushed
        {
            closing.step = ClosingStep::Waiting;
        }
        if closing.step == ClosingStep::Waiting && closing.is_client_done {
            closing.step = ClosingStep::ShuttingDown;
        }
        if closing.step != ClosingStep::ShuttingDown {
            return Poll::Pending;
        }
        let down = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
        Poll::Ready(Err(match down {
            Ok(()) => SocketEnd::Closed(closing.reason.clone()),
            Err(error) => SocketEnd::Failed(error),
        }))
    }

    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Progress {
        match ready!(self.timers.poll(cx)) {
            TimerEvent::PingDue => {
                self.is_ping_due = true;
                self.control_frames = 0;
            }
            TimerEvent::Silent => {
                let why = "No answer to pings";
                self.close(CloseReason::new(CloseCode::POLICY_VIOLATION, why));
            }
            TimerEvent::WriteBlocked => return Poll::Ready(Err(SocketEnd::Stalled)),
            TimerEvent::CloseOver => {
                let reason = self.closing.take().map(|closing| closing.reason);
                return Poll::Ready(Err(SocketEnd::Closed(reason.unwrap_or_default())));
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
