//! A small HTTP client for the local interface: one request per connection, everything visible.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
pub(crate) struct LocalAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl LocalAnswer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// What a request has besides method and path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra<'a> {
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

pub(crate) async fn unix(path: &Path, method: &str, target: &str, extra: Extra<'_>) -> LocalAnswer {
    let stream = UnixStream::connect(path).await.unwrap();
    exchange(stream, method, target, extra).await
}

pub(crate) async fn tcp(port: u16, method: &str, target: &str, extra: Extra<'_>) -> LocalAnswer {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    exchange(stream, method, target, extra).await
}

pub(crate) async fn over(
    stream: TcpStream,
    method: &str,
    target: &str,
    extra: Extra<'_>,
) -> LocalAnswer {
    exchange(stream, method, target, extra).await
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    target: &str,
    extra: Extra<'_>,
) -> LocalAnswer {
    let mut head = format!("{method} {target} HTTP/1.1\r\nConnection: close\r\n");
    if !extra.headers.iter().any(|(name, _)| *name == "Host") {
        head.push_str("Host: localhost\r\n");
    }
    for (name, value) in extra.headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    write!(head, "Content-Length: {}\r\n\r\n", extra.body.len()).unwrap();
    let mut bytes = Vec::new();
    let talking = async {
        stream.write_all(head.as_bytes()).await.unwrap();
        // A refusal may come before the body was read.
        let _ = stream.write_all(extra.body).await;
        let _ = stream.read_to_end(&mut bytes).await;
    };
    timeout(LIMIT, talking).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to {method} {target}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    LocalAnswer {
        status,
        head: head.to_owned(),
        text: body.to_owned(),
    }
}

/// An open event stream.
pub(crate) struct EventReader {
    stream: UnixStream,
    text: String,
}

impl EventReader {
    pub(crate) async fn open(path: &Path) -> Self {
        let mut stream = UnixStream::connect(path).await.unwrap();
        let head = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let mut reader = Self {
            stream,
            text: String::new(),
        };
        reader.until(": connected").await;
        reader
    }

    /// Reads on until the text of the stream contains this.
    pub(crate) async fn until(&mut self, wanted: &str) -> &str {
        let reading = async {
            let mut buffer = [0; 4_096];
            while !self.text.contains(wanted) {
                let read = self.stream.read(&mut buffer).await.unwrap();
                assert_ne!(read, 0, "the stream ended without {wanted}: {}", self.text);
                self.text
                    .push_str(&String::from_utf8_lossy(&buffer[..read]));
            }
        };
        timeout(LIMIT, reading).await.unwrap();
        &self.text
    }

    /// The data of the first event of a kind.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        let wanted = format!("event: {kind}\ndata: ");
        self.until(&wanted).await;
        let at = self.text.find(&wanted).unwrap() + wanted.len();
        while !self.text[at..].contains("\n\n") {
            let mut buffer = [0; 4_096];
            let read = timeout(LIMIT, self.stream.read(&mut buffer)).await.unwrap();
            self.text
                .push_str(&String::from_utf8_lossy(&buffer[..read.unwrap()]));
        }
        let line = self.text[at..].split('\n').next().unwrap();
        serde_json::from_str(line).unwrap()
    }
}
