//! A blocking WebSocket client for tests, which can also send what no client library sends.
//!
//! Invariant: it sends exactly the given frames and bytes. Only pings are answered by itself, while it waits for a message.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpSocket;

pub const FINAL: u8 = 0x80;
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const LENGTH_16: u8 = 126;
const LENGTH_64: u8 = 127;
const TIMEOUT: Duration = Duration::from_secs(15);

/// Where a client connects from, and how much the system receives for it.
#[derive(Clone, Copy, Debug)]
pub struct ClientEnd {
    pub address: IpAddr,
    /// The receive buffer of the system; its default if there is none.
    pub receive_bytes: Option<u32>,
}

impl Default for ClientEnd {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            receive_bytes: None,
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct WebSocketClient {
    stream: BufReader<TcpStream>,
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFrame {
    pub opcode: u8,
    pub payload: Vec<u8>,
}

impl WebSocketClient {
    /// Opens a socket at `address:port`. The error of a refused upgrade contains the response.
    pub fn open(authority: &str, path: &str) -> io::Result<Self> {
        Self::open_from(authority, path, ClientEnd::default())
    }

    pub fn open_from(authority: &str, path: &str, end: ClientEnd) -> io::Result<Self> {
        let server = authority.parse().map_err(io::Error::other)?;
        let stream = connect(server, end)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut stream = BufReader::with_capacity(4096, stream);
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(io::Error::other(head));
        }
        Ok(Self { stream })
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    pub fn send_text(&mut self, text: &str) -> io::Result<()> {
        self.send_bytes(&client_frame(FINAL | TEXT, text.as_bytes()))
    }

    pub fn send_json(&mut self, message: &Value) -> io::Result<()> {
        self.send_text(&message.to_string())
    }

    /// The next frame of any kind; `None` at the end of the stream.
    pub fn next_frame(&mut self) -> io::Result<Option<ServerFrame>> {
        let mut head = [0; 2];
        match self.stream.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let [first, length] = head;
        let whole_and_unmasked = first & 0xf0 == FINAL && length & MASKED == 0;
        if !whole_and_unmasked {
            let text = format!("a server does not send frames with {first:#x} {length:#x}");
            return Err(io::Error::other(text));
        }
        let length = match length {
            LENGTH_16 => u64::from(u16::from_be_bytes(self.read_bytes()?)),
            LENGTH_64 => u64::from_be_bytes(self.read_bytes()?),
            short => short.into(),
        };
        let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.stream.read_exact(&mut payload)?;
        Ok(Some(ServerFrame {
            opcode: first & 0x0f,
            payload,
        }))
    }

    /// The next text message as JSON. The end of the socket is an error.
    pub fn next_json(&mut self) -> io::Result<Value> {
        loop {
            let frame = self.next_frame()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            match frame.opcode {
                TEXT => return serde_json::from_slice(&frame.payload).map_err(io::Error::other),
                PING => self.send_bytes(&client_frame(FINAL | PONG, &frame.payload))?,
                CLOSE => {
                    let (code, reason) = close_reason(&frame.payload);
                    let text = format!("the server closed the socket: {code} {reason}");
                    return Err(io::Error::other(text));
                }
                _ => {}
            }
        }
    }

    /// Waits for the closing frame, answers it, and waits for the end of the stream. Messages before it are discarded.
    pub fn until_closed(&mut self) -> io::Result<(u16, String)> {
        loop {
            let frame = self.next_frame()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if frame.opcode != CLOSE {
                continue;
            }
            // The server may be gone already.
            let _ = self.send_bytes(&client_frame(FINAL | CLOSE, &frame.payload));
            return match self.next_frame() {
                Ok(None) => Ok(close_reason(&frame.payload)),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    Ok(close_reason(&frame.payload))
                }
                Ok(Some(more)) => Err(io::Error::other(format!("after the close: {more:?}"))),
                Err(error) => Err(error),
            };
        }
    }

    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        self.stream.get_ref().set_write_timeout(Some(patience))
    }

    fn read_bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A masked frame. `first` is its first byte: the final bit, reserved bits and the opcode.
pub fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    if let Ok(short) = u8::try_from(payload.len())
        && short < LENGTH_16
    {
        frame.push(MASKED | short);
    } else if let Ok(middle) = u16::try_from(payload.len()) {
        frame.push(MASKED | LENGTH_16);
        frame.extend(middle.to_be_bytes());
    } else {
        frame.push(MASKED | LENGTH_64);
        frame.extend((payload.len() as u64).to_be_bytes());
    }
    frame.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}

fn close_reason(payload: &[u8]) -> (u16, String) {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return (0, String::new());
    };
    let reason = String::from_utf8_lossy(reason).into_owned();
    (u16::from_be_bytes(*code), reason)
}

/// The standard library cannot choose the address of a client or the size of its buffer.
fn connect(server: SocketAddr, end: ClientEnd) -> io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(end.address, 0))?;
        if let Some(bytes) = end.receive_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.connect(server).await
    })?;
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}
