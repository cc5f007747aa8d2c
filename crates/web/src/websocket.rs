//! WebSocket connections (RFC 6455), for any protocol.
//!
//! A handler takes a [`SocketUpgrade`] and calls [`SocketUpgrade::accept`] with a function that runs for the life of
//! the socket. It sends through a [`SocketSender`], which other parts of the program may clone, and receives through
//! [`SocketMessages`]. Pings, pongs, fragments and the closing handshake are handled here.
//!
//! Invariant: a client can occupy only bounded resources: the length of a message, its fragments, the rate of control
//! frames, the messages that wait in either direction, and the time without an answer or without progress are limited
//! by [`Options`]. An idle socket has no buffers. A socket keeps its connection slot until its stream is dropped, and
//! the drain of the server closes it with 1001.
//!
//! The framing is not left to a library: the usual one joins fragments without reporting them, so that a flood of them
//! has no limit, and keeps buffers of the size of the largest message for the life of the socket. Extensions, such as
//! compression, and subprotocols are never negotiated.

mod channel;
mod close;
mod driver;
mod frame;
#[cfg(any(test, feature = "simulation"))]
mod in_memory;
mod message_reader;
mod outgoing;
mod task;
mod upgrade;

use std::time::Duration;

pub use self::channel::{SendRefusal, SocketMessages, SocketSender};
pub use self::close::{CloseCode, CloseReason};
#[cfg(any(test, feature = "simulation"))]
pub use self::in_memory::InMemoryClient;
pub use self::message_reader::{MessageReader, Received, SocketMessage};
pub(crate) use self::upgrade::SocketAdmission;
pub use self::upgrade::{SocketUpgrade, UpgradeRefusal};

pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Enough for a message of the largest size in frames of 512 bytes.
pub const FRAGMENTS_MAX: usize = 128;
/// Pings, pongs and the closing frame of a client in one [`PING_INTERVAL`]. A busy client sends one in a second.
pub const CONTROL_FRAMES_MAX: usize = 128;
pub const QUEUE_MESSAGES_MAX: usize = 256;
pub const QUEUE_BYTES_MAX: usize = 256 << 10;
/// Received messages that wait for the handler.
pub const WAITING_MESSAGES_MAX: usize = 16;
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Two and a half intervals, so that one lost answer does not close the socket.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(75);
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The reason of the closing frame when the server drains.
pub const SHUTDOWN_REASON: &str = "Server is shutting down";
/// Well below the drain time of the server.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The limits of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The limit of a received message, and of each of its frames; a longer one closes the socket with 1009. Received
    /// messages of this many bytes may also wait for the handler.
    pub message_bytes_max: usize,
    /// The frames of one received message; more close the socket with 1008.
    pub fragments_max: usize,
    /// The received control frames in a ping interval; more close the socket with 1008.
    pub control_frames_max: usize,
    pub binary: BinaryMessages,
    /// Sent messages that wait for the client; see [`SocketSender::try_send`].
    pub queue_messages_max: usize,
    pub queue_bytes_max: usize,
    /// Received messages that wait for the handler; while there are as many, nothing is read from the client.
    pub waiting_messages_max: usize,
    pub ping_interval: Duration,
    /// A client that sends nothing for this long, no pong either, is closed with 1008.
    pub silence_timeout: Duration,
    /// A client that reads nothing for this long while data waits is disconnected.
    pub write_timeout: Duration,
    /// The time for the messages that wait, the closing frame, and the answer of the client to it.
    pub close_timeout: Duration,
}

impl Options {
    /// Text messages only, with the default limits.
    pub const fn new() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES_MAX,
            fragments_max: FRAGMENTS_MAX,
            control_frames_max: CONTROL_FRAMES_MAX,
            binary: BinaryMessages::Refused,
            queue_messages_max: QUEUE_MESSAGES_MAX,
            queue_bytes_max: QUEUE_BYTES_MAX,
            waiting_messages_max: WAITING_MESSAGES_MAX,
            ping_interval: PING_INTERVAL,
            silence_timeout: SILENCE_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            close_timeout: CLOSE_TIMEOUT,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// What happens to binary messages of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryMessages {
    /// The socket is closed with 1003.
    Refused,
    Delivered,
}

#[cfg(test)]
mod tests;
