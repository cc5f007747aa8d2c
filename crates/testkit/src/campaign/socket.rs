//! A WebSocket of a client, for text messages only. A look for a message ends after a short time and keeps a part of one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::process::Http;
use crate::process::websocket::{FINAL, PING, PONG, TEXT, client_frame};

const HANDSHAKE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// How long one look for a message waits.
const LOOK: Duration = Duration::from_millis(4);
const LENGTH_16: u8 = 126;

#[derive(Debug)]
pub(super) struct CampaignSocket {
    stream: TcpStream,
    received: Vec<u8>,
}

impl CampaignSocket {
    /// Connects; `path` includes the query.
    pub(super) fn connect(http: &Http, authority: &str, path: &str) -> io::Result<Self> {
        let mut stream = http.connect()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n{HANDSHAKE}");
        stream.write_all(request.as_bytes())?;
        let mut received = Vec::new();
        let head = loop {
            let end = received.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                break end + 4;
            }
            read_some(&mut stream, &mut received)?;
        };
        if !received.starts_with(b"HTTP/1.1 101 ") {
            let text = String::from_utf8_lossy(&received).into_owned();
            return Err(io::Error::other(format!("no socket was opened: {text}")));
        }
        received.drain(..head);
        stream.set_read_timeout(Some(LOOK))?;
        Ok(Self { stream, received })
    }

    /// The next message, if one arrives soon. An error means that the socket is closed.
    pub(super) fn look(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some((opcode, payload)) = self.take_frame()? {
                match opcode {
                    TEXT => return Ok(Some(String::from_utf8_lossy(&payload).into_owned())),
                    PING => self
                        .stream
                        .write_all(&client_frame(FINAL | PONG, &payload))?,
                    PONG => {}
                    _ => return Err(io::ErrorKind::ConnectionAborted.into()),
                }
                continue;
            }
            match read_some(&mut self.stream, &mut self.received) {
                Ok(()) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn send(&mut self, text: &str) -> io::Result<()> {
        let frame = client_frame(FINAL | TEXT, text.as_bytes());
        self.stream.write_all(&frame)
    }

    /// The opcode and the payload of a complete frame. The server sends whole messages of less than 64 KiB.
    fn take_frame(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let (begin, length) = match self.received.as_slice() {
            [_, LENGTH_16, high, low, ..] => (4, usize::from(u16::from_be_bytes([*high, *low]))),
            [_, short, ..] if *short < LENGTH_16 => (2, usize::from(*short)),
            [_, longer, ..] if *longer > LENGTH_16 => {
                return Err(io::Error::other("the server sent a frame that is too long"));
            }
            _ => return Ok(None),
        };
        if self.received.len() < begin + length {
            return Ok(None);
        }
        let opcode = self.received[0] & 0x0f;
        let payload = self.received[begin..begin + length].to_vec();
        self.received.drain(..begin + length);
        Ok(Some((opcode, payload)))
    }
}

fn read_some(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<()> {
    let mut part = [0; 4096];
    let count = stream.read(&mut part)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    received.extend_from_slice(&part[..count]);
    Ok(())
}
