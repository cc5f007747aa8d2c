//! Writes frames to the stream, without copying their payload.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

use super::frame::{Opcode, OwnHead};

/// The content of a message. Clones share it.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    Text(Arc<str>),
    Binary(Arc<[u8]>),
}

impl Payload {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    const fn opcode(&self) -> Opcode {
        match self {
            Self::Text(_) => Opcode::Text,
            Self::Binary(_) => Opcode::Binary,
        }
    }
}

/// A frame that is being written.
#[derive(Debug)]
pub(super) struct OutgoingFrame {
    opcode: Opcode,
    head: OwnHead,
    payload: Payload,
    /// Of head and payload together.
    written: usize,
}

impl OutgoingFrame {
    pub(super) fn message(payload: Payload) -> Self {
        let opcode = payload.opcode();
        Self {
            opcode,
            head: OwnHead::new(opcode, payload.as_bytes().len()),
            payload,
            written: 0,
        }
    }

    pub(super) fn control(opcode: Opcode, payload: &[u8]) -> Self {
        Self {
            opcode,
            head: OwnHead::new(opcode, payload.len()),
            payload: Payload::Binary(payload.into()),
            written: 0,
        }
    }

    pub(super) const fn opcode(&self) -> Opcode {
        self.opcode
    }

    pub(super) fn is_written(&self) -> bool {
        self.written == self.head.as_bytes().len() + self.payload.as_bytes().len()
    }

    /// Writes once.
    pub(super) fn poll_write<T>(
        &mut self,
        stream: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        T: AsyncWrite + Unpin,
    {
        let (head, payload) = (self.head.as_bytes(), self.payload.as_bytes());
        let stream = Pin::new(stream);
        let written = match self.written.checked_sub(head.len()) {
            None => {
                let slices = [IoSlice::new(&head[self.written..]), IoSlice::new(payload)];
                ready!(stream.poll_write_vectored(cx, &slices))?
            }
            Some(done) => ready!(stream.poll_write(cx, &payload[done..]))?,
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written += written;
        Poll::Ready(Ok(()))
    }
}
