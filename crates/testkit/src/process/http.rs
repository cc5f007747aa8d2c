//! A minimal HTTP/1.1 client for tests: one persistent connection, blocking, without retries.
//!
//! Invariant: a request is sent once. After an error the connection is dropped, and the error
//! means that the outcome is unknown, which crash tests depend on.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(15);

/// A client of one server.
#[derive(Debug)]
pub struct Http {
    authority: String,
    headers: Vec<(String, String)>,
    patience: Duration,
    connection: Option<BufReader<TcpStream>>,
}

/// A response of any status.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The code of an error in the protocol's format.
    pub fn code(&self) -> String {
        let json = self.json();
        json["error"]["code"].as_str().unwrap_or("").to_owned()
    }
}

impl Http {
    /// For `address:port`.
    pub fn new(authority: &str) -> Self {
        Self {
            authority: authority.to_owned(),
            headers: Vec::new(),
            patience: TIMEOUT,
            connection: None,
        }
    }

    /// Sets how long to wait for a response, which then counts as lost.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends this header with every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `address:port`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    pub fn get(&mut self, path: &str) -> io::Result<Reply> {
        self.send("GET", path, &[], None)
    }

    pub fn post(&mut self, path: &str, body: &serde_json::Value) -> io::Result<Reply> {
        self.send("POST", path, &[], Some(body))
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&serde_json::Value>,
    ) -> io::Result<Reply> {
        let body = body.map(serde_json::Value::to_string).unwrap_or_default();
        let own = self.headers.iter();
        let own = own.map(|(name, value)| (name.as_str(), value.as_str()));
        let lines: Vec<String> = own
            .chain(headers.iter().copied())
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.authority,
            lines.concat(),
            body.len(),
        );
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => BufReader::new(self.connect()?),
        };
        connection.get_mut().write_all(request.as_bytes())?;
        let reply = read_reply(&mut connection)?;
        if reply.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(reply)
    }

    /// Opens a separate connection, for tests that write raw bytes.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.authority)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        Ok(stream)
    }
}

/// Reads one response. The server sends the length of every response except streams.
pub fn read_reply(stream: &mut impl BufRead) -> io::Result<Reply> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "no HTTP answer");
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let status = line.split_whitespace().nth(1).ok_or_else(malformed)?;
    let status = status.parse().map_err(|_| malformed())?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut reply = Reply {
        status,
        headers,
        body: Vec::new(),
    };
    let length = reply.header("content-length").unwrap_or("0");
    let length: usize = length.parse().map_err(|_| malformed())?;
    reply.body.resize(length, 0);
    stream.read_exact(&mut reply.body)?;
    Ok(reply)
}
