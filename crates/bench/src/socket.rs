//! One WebSocket to the server, with reused buffers.
//!
//! Invariant: only what this server sends is supported: whole text messages, pings, and the closing frame. Anything
//! else is an error, because a guess would corrupt the counts.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::response::find;

/// Enough for a few messages; longer ones grow it.
const BUFFER_BYTES: usize = 4 << 10;
/// The server accepts any key; each socket could use the same.
const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const HEAD_BYTES_MAX: usize = 64 << 10;

const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
/// A mask of zeros leaves the text as it is, so masking takes no time here; the server unmasks as ever.
const MASK: [u8; 4] = [0; 4];
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

#[derive(Debug)]
pub(crate) struct BenchSocket {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What was taken from the buffer.
    taken: usize,
    filled: usize,
    out: Vec<u8>,
}

impl BenchSocket {
    /// Connects from the given address, or from any. `path` includes the query.
    pub(crate) async fn open(
        server: SocketAddr,
        from: Option<IpAddr>,
        authority: &str,
        path: &str,
    ) -> io::Result<Self> {
        let stream = match from {
            None => TcpStream::connect(server).await?,
            Some(from) => {
                let socket = if from.is_ipv4() {
                    TcpSocket::new_v4()?
                } else {
                    TcpSocket::new_v6()?
                };
                socket.bind(SocketAddr::new(from, 0))?;
                socket.connect(server).await?
            }
        };
        stream.set_nodelay(true)?;
        let mut socket = Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            taken: 0,
            filled: 0,
            out: Vec::new(),
        };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n{HANDSHAKE}");
        socket.stream.write_all(request.as_bytes()).await?;
        let head_end = loop {
            socket.fill().await?;
            let received = &socket.buffer[..socket.filled];
            if let Some(at) = find(received, b"\r\n\r\n") {
                break at + 4;
            }
            if received.len() > HEAD_BYTES_MAX {
                return Err(io::Error::other("the head of the handshake is too long"));
            }
        };
        if !socket.buffer.starts_with(b"HTTP/1.1 101 ") {
            let text = String::from_utf8_lossy(&socket.buffer[..socket.filled]);
            let message = format!("the server opened no socket: {text}");
            return Err(io::Error::other(message));
        }
        socket.taken = head_end;
        Ok(socket)
    }

    /// Adds a text message to those that [`Self::flush`] sends.
    pub(crate) fn queue(&mut self, parts: &[&[u8]]) {
        write_frame(&mut self.out, TEXT, parts);
    }

    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).await?;
            self.out.clear();
        }
        Ok(())
    }

    /// The next text message, as soon as it is there.
    pub(crate) async fn message(&mut self) -> io::Result<Range<usize>> {
        loop {
            if let Some(message) = self.received()? {
                return Ok(message);
            }
            // Answers to pings.
            self.flush().await?;
            self.fill().await?;
        }
    }

    /// The next text message that was received completely. It is valid until more is received.
    pub(crate) fn received(&mut self) -> io::Result<Option<Range<usize>>> {
        while let Some(frame) = server_frame(&self.buffer[self.taken..self.filled])? {
            let payload = self.taken + frame.payload.start..self.taken + frame.payload.end;
            self.taken = payload.end;
            match frame.opcode {
                TEXT => return Ok(Some(payload)),
                PING => write_frame(&mut self.out, PONG, &[&self.buffer[payload]]),
                PONG => {}
                CLOSE => {
                    let reason = self.buffer[payload].get(2..).unwrap_or_default();
                    let reason = String::from_utf8_lossy(reason);
                    let message = format!("the server closed the socket: {reason}");
                    return Err(io::Error::other(message));
                }
                _ => return Err(io::Error::other("the server sent an unknown frame")),
            }
        }
        Ok(None)
    }

    pub(crate) fn bytes(&self, message: Range<usize>) -> &[u8] {
        &self.buffer[message]
    }

    /// Receives more.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let received = self.stream.read(&mut self.buffer[self.filled..]).await?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.filled += received;
        Ok(())
    }
}

/// A complete frame at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
struct ServerFrame {
    opcode: u8,
    payload: Range<usize>,
}

/// `None` means that more bytes are needed.
fn server_frame(bytes: &[u8]) -> io::Result<Option<ServerFrame>> {
    let [first, second, rest @ ..] = bytes else {
        return Ok(None);
    };
    if first & FINAL == 0 || second & MASKED != 0 {
        return Err(io::Error::other("the server sent a part of a message"));
    }
    let (length, begin) = match *second {
        LENGTH_16 => match rest.first_chunk() {
            Some(length) => (u64::from(u16::from_be_bytes(*length)), 4),
            None => return Ok(None),
        },
        LENGTH_64 => match rest.first_chunk() {
            Some(length) => (u64::from_be_bytes(*length), 10),
            None => return Ok(None),
        },
        length => (u64::from(length), 2),
    };
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let payload = begin..begin + length;
    let opcode = first & 0x0f;
    Ok((payload.end <= bytes.len()).then_some(ServerFrame { opcode, payload }))
}

fn write_frame(out: &mut Vec<u8>, opcode: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(FINAL | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < LENGTH_16 => out.push(MASKED | short),
        (_, Ok(length)) => {
            out.push(MASKED | LENGTH_16);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(MASKED | LENGTH_64);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(bytes: &[u8]) -> Option<ServerFrame> {
        server_frame(bytes).unwrap()
    }

    #[test]
    fn a_frame_is_complete_with_its_last_byte() {
        let mut long = vec![FINAL | TEXT, LENGTH_16, 1, 0];
        long.extend([b'x'; 256]);
        let short = [FINAL | TEXT, 2, b'h', b'i'].to_vec();
        for (bytes, begin) in [(short, 2), (long, 4)] {
            for cut in 0..bytes.len() {
                assert_eq!(frame(&bytes[..cut]), None, "cut at {cut}");
            }
            let payload = begin..bytes.len();
            assert_eq!(
                frame(&bytes),
                Some(ServerFrame {
                    opcode: TEXT,
                    payload
                })
            );
        }
    }

    #[test]
    fn parts_of_messages_are_refused() {
        assert!(server_frame(&[TEXT, 1, b'x']).is_err());
        assert!(server_frame(&[FINAL | TEXT, MASKED, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn written_frames_have_their_length_and_a_mask() {
        for (length, head) in [
            (2, vec![0x81, 0x82]),
            (125, vec![0x81, 0xfd]),
            (126, vec![0x81, 0xfe, 0, 126]),
            (70_000, vec![0x81, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70]),
        ] {
            let mut out = Vec::new();
            let text = vec![b'x'; length];
            write_frame(&mut out, TEXT, &[&text[..1], &text[1..]]);
            assert_eq!(out[..head.len()], head);
            assert_eq!(out[head.len()..][..4], MASK);
            assert_eq!(out.len(), head.len() + 4 + length);
        }
    }
}
