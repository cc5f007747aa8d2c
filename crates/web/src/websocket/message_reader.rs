//! Joins the bytes of a client to messages and control frames.
//!
//! Invariant: it holds at most one message of the allowed length, and memory for it only as the bytes arrive. Errors
//! are the reason with which the socket is to be closed. After one, messages are skipped, and only the closing frame of
//! the client is looked for, unless the framing is lost.

use super::close::{CloseCode, CloseReason};
use super::frame::{FrameHead, HeadReader, Opcode};
use super::{BinaryMessages, Options};

/// A message of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketMessage {
    Text(String),
    /// Only if [`Options::binary`] allows it.
    Binary(Vec<u8>),
}

impl SocketMessage {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    Message(SocketMessage),
    Ping(Vec<u8>),
    Pong,
    Close(CloseReason),
}

#[derive(Debug)]
pub(super) struct MessageReader {
    message_bytes_max: usize,
    fragments_max: usize,
    binary: BinaryMessages,
    head: HeadReader,
    /// The frame whose payload is being read.
    frame: Option<OpenFrame>,
    message: Option<OpenMessage>,
    /// The payload of a control frame, which may come between the fragments of a message.
    control: Vec<u8>,
    is_framing_lost: bool,
    is_skipping: bool,
}

#[derive(Debug)]
struct OpenFrame {
    head: FrameHead,
    bytes_left: u64,
    mask_at: usize,
}

#[derive(Debug)]
struct OpenMessage {
    is_text: bool,
    bytes: Vec<u8>,
    fragments: usize,
}

impl MessageReader {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            message_bytes_max: options.message_bytes_max,
            fragments_max: options.fragments_max,
            binary: options.binary,
            head: HeadReader::default(),
            frame: None,
            message: None,
            control: Vec::new(),
            is_framing_lost: false,
            is_skipping: false,
        }
    }

    /// From now on messages are discarded as they arrive, and nothing but the closing frame is returned.
    pub(super) fn skip(&mut self) {
        self.is_skipping = true;
        self.message = None;
        self.control = Vec::new();
    }

    /// Whether the end of the current frame is unknown, so that the closing frame will not be found.
    pub(super) const fn is_framing_lost(&self) -> bool {
        self.is_framing_lost
    }

    /// Takes bytes from the front of `input` until something is complete.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Received>, CloseReason> {
        self.read(input).inspect_err(|_| self.skip())
    }

    fn read(&mut self, input: &mut &[u8]) -> Result<Option<Received>, CloseReason> {
        loop {
            if self.frame.is_none() {
                let head = self.head.read(input).map_err(|why| {
                    self.is_framing_lost = true;
                    CloseReason::new(CloseCode::PROTOCOL_ERROR, why)
                })?;
                let Some(head) = head else { return Ok(None) };
                self.frame = Some(OpenFrame {
                    head,
                    bytes_left: head.length,
                    mask_at: 0,
                });
                self.begin(head)?;
            }
            let Some(head) = self.read_payload(input) else {
                return Ok(None);
            };
            if let Some(received) = self.end(head)? {
                return Ok(Some(received));
            }
        }
    }

    /// Checks the head of a frame against the message that it belongs to.
    fn begin(&mut self, head: FrameHead) -> Result<(), CloseReason> {
        if head.opcode.is_control() {
            self.control.clear();
            return Ok(());
        }
        if self.is_skipping {
            return Ok(());
        }
        let refused = |code, why| Err(CloseReason::new(code, why));
        let out_of_order = |why| refused(CloseCode::PROTOCOL_ERROR, why);
        match (head.opcode, &mut self.message) {
            (Opcode::Continuation, Some(message)) => message.fragments += 1,
            (Opcode::Continuation, None) => return out_of_order("There is no message to continue"),
            (_, Some(_)) => return out_of_order("The message before is not complete"),
            (Opcode::Binary, None) if self.binary == BinaryMessages::Refused => {
                return refused(
                    CloseCode::UNSUPPORTED_DATA,
                    "Binary messages are not accepted",
                );
            }
            (opcode, message @ None) => {
                *message = Some(OpenMessage {
                    is_text: opcode == Opcode::Text,
                    bytes: Vec::new(),
                    fragments: 1,
                });
            }
        }
        let (bytes, fragments) = self
            .message
            .as_ref()
            .map_or((0, 0), |message| (message.bytes.len(), message.fragments));
        if head.length > (self.message_bytes_max.saturating_sub(bytes)) as u64 {
            return refused(CloseCode::MESSAGE_TOO_BIG, "The message is too long");
        }
        if fragments > self.fragments_max {
            return refused(CloseCode::POLICY_VIOLATION, "Too many fragments");
        }
        Ok(())
    }

    /// Reads the payload of the open frame; returns its head once it is complete.
    fn read_payload(&mut self, input: &mut &[u8]) -> Option<FrameHead> {
        let frame = self.frame.as_mut()?;
        let head = frame.head;
        let length = usize::try_from(frame.bytes_left).unwrap_or(usize::MAX);
        let (payload, rest) = input.split_at(length.min(input.len()));
        *input = rest;
        frame.bytes_left -= payload.len() as u64;
        let target = match (&mut self.message, head.opcode.is_control()) {
            (_, true) => Some(&mut self.control),
            (Some(message), false) => Some(&mut message.bytes),
            // Only while messages are skipped.
            (None, false) => None,
        };
        if let Some(target) = target {
            let begun = target.len();
            target.extend_from_slice(payload);
            let mut mask = head.mask;
            mask.rotate_left(frame.mask_at);
            for chunk in target[begun..].chunks_mut(mask.len()) {
                for (byte, mask) in chunk.iter_mut().zip(mask) {
                    *byte ^= mask;
                }
            }
            frame.mask_at = (frame.mask_at + payload.len()) % 4;
        }
        if frame.bytes_left > 0 {
            return None;
        }
        self.frame = None;
        Some(head)
    }

    /// What a complete frame means.
    fn end(&mut self, head: FrameHead) -> Result<Option<Received>, CloseReason> {
        let payload = |control: &mut Vec<u8>| std::mem::take(control);
        match head.opcode {
            Opcode::Close => CloseReason::parse(&payload(&mut self.control))
                .map(Received::Close)
                .map(Some)
                .inspect_err(|_| self.is_framing_lost = true),
            Opcode::Ping | Opcode::Pong if self.is_skipping => Ok(None),
            Opcode::Ping => Ok(Some(Received::Ping(payload(&mut self.control)))),
            Opcode::Pong => {
                self.control = Vec::new();
                Ok(Some(Received::Pong))
            }
            Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                let complete = self.message.take_if(|_| head.is_final);
                let Some(message) = complete else {
                    return Ok(None);
                };
                if !message.is_text {
                    let bytes = message.bytes;
                    return Ok(Some(Received::Message(SocketMessage::Binary(bytes))));
                }
                String::from_utf8(message.bytes)
                    .map(|text| Some(Received::Message(SocketMessage::Text(text))))
                    .map_err(|_| CloseReason::new(CloseCode::INVALID_DATA, "The text is not UTF-8"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
