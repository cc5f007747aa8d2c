//! A small HTTP server in this process. It returns scripted bytes and records the requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// With names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

pub(crate) enum Answer {
    Bytes(Vec<u8>),
    /// Sends these bytes and keeps the connection open.
    Stall(Vec<u8>),
}

pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Endpoint {
    pub(crate) async fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let book = Arc::clone(&asked);
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&book), Arc::clone(&answer)));
            }
        });
        Self { address, asked }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A complete answer, after which the connection is closed.
pub(crate) fn reply(status: &str, body: &str) -> Answer {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    Answer::Bytes([head.as_bytes(), body.as_bytes()].concat())
}

async fn serve(
    mut stream: TcpStream,
    book: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<impl Fn(&Asked) -> Answer>,
) {
    let Some(asked) = read(&mut stream).await else {
        return;
    };
    book.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(asked.clone());
    // The client may disconnect before the end.
    match answer(&asked) {
        Answer::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Answer::Stall(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.read(&mut [0; 1]).await;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).await.ok()?;
        if count == 0 {
            return None;
        }
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(asked) = parse(&bytes) {
            return Some(asked);
        }
    }
}

/// The request, once it is complete.
fn parse(bytes: &[u8]) -> Option<Asked> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = str::from_utf8(&bytes[..end]).unwrap();
    let body = &bytes[end + 4..];
    let mut lines = head.lines();
    let mut first = lines.next().unwrap().split(' ');
    let mut asked = Asked {
        method: first.next().unwrap().to_owned(),
        path: first.next().unwrap().to_owned(),
        ..Asked::default()
    };
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        asked.headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = asked.header("content-length");
    let length = length.map_or(0, |length| length.parse().unwrap());
    asked.body = body.to_vec();
    (body.len() >= length).then_some(asked)
}
