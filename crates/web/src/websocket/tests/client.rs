//! A client that can break the rules.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const MASK: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

/// A masked frame that begins with the byte `first`.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    let length = payload.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..=125), _) => frame.push(0x80 | short),
        (_, Ok(middle)) => {
            frame.push(0xfe);
            frame.extend(middle.to_be_bytes());
        }
        (_, Err(_)) => {
            frame.push(0xff);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    let masked = payload.iter().zip(MASK.iter().cycle());
    frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    frame
}

pub(crate) fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
}

pub(crate) struct RawClient<S> {
    pub(crate) stream: S,
    /// The head of the response.
    pub(crate) head: String,
}

impl RawClient<TcpStream> {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self::open(TcpStream::connect(addr).await.unwrap(), "/ws").await
    }

    /// A client whose kernel takes little ahead of what it reads.
    pub(crate) async fn connect_narrow(addr: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        Self::open(socket.connect(addr).await.unwrap(), "/ws").await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RawClient<S> {
    /// Sends the handshake and reads the head of the response.
    pub(crate) async fn open(stream: S, path: &str) -> Self {
        Self::open_with(stream, handshake(path).as_bytes()).await
    }

    pub(crate) async fn open_with(mut stream: S, request: &[u8]) -> Self {
        stream.write_all(request).await.unwrap();
        let mut head = Vec::new();
        let reading = async {
            while !head.ends_with(b"\r\n\r\n") {
                // Byte by byte, because frames may follow at once.
                head.push(stream.read_u8().await.unwrap());
            }
        };
        timeout(PATIENCE, reading).await.expect("a response");
        let head = String::from_utf8(head).unwrap();
        Self { stream, head }
    }

    pub(crate) async fn send(&mut self, first: u8, payload: &[u8]) {
        let frame = frame(first, payload);
        self.stream.write_all(&frame).await.unwrap();
    }

    /// The first byte and the payload of the next frame; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        timeout(PATIENCE, self.read_frame()).await.expect("a frame")
    }

    async fn read_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = self.stream.read_u8().await.ok()?;
        let length = match self.stream.read_u8().await.ok()? {
            126 => u64::from(self.stream.read_u16().await.ok()?),
            127 => self.stream.read_u64().await.ok()?,
            short => u64::from(short),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((first, payload))
    }

    pub(crate) async fn echo(&mut self, text: &str) {
        self.send(0x81, text.as_bytes()).await;
        let (first, payload) = self.next().await.expect("an echo");
        assert_eq!((first, payload.as_slice()), (0x81, text.as_bytes()));
    }

    /// Skips messages until the closing frame; returns its code and reason.
    pub(crate) async fn closing(&mut self) -> (u16, String) {
        loop {
            let (first, payload) = self.next().await.expect("a closing frame");
            if first == 0x88 {
                let (code, reason) = payload.split_first_chunk().expect("a code");
                let reason = String::from_utf8(reason.to_vec()).unwrap();
                return (u16::from_be_bytes(*code), reason);
            }
        }
    }

    /// As [`Self::closing`], answers it, and waits for the end of the stream.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        let (code, reason) = self.closing().await;
        // The server may have closed the stream already.
        let answer = frame(0x88, &code.to_be_bytes());
        let _ = self.stream.write_all(&answer).await;
        assert_eq!(self.next().await, None);
        (code, reason)
    }
}
