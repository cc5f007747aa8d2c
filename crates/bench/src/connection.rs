//! One connection to the server, one request at a time, with reused buffers.
//!
//! Invariant: after a failed exchange the connection is closed and the next exchange opens a new
//! one, so an answer is never attributed to an earlier request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::response::{ResponseHead, ResponseReader};

/// Enough for any single answer; batches grow it once.
const BUFFER_BYTES: usize = 16 << 10;

/// Where a program listens.
#[derive(Debug, Clone)]
pub(crate) enum BenchAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl From<SocketAddr> for BenchAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

#[derive(Debug)]
enum BenchStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

#[derive(Debug)]
pub(crate) struct BenchConnection {
    server: BenchAddress,
    stream: Option<BenchStream>,
    reader: ResponseReader,
    buffer: Vec<u8>,
    filled: usize,
    answer: Option<ResponseHead>,
}

impl BenchConnection {
    pub(crate) async fn open(server: impl Into<BenchAddress>) -> io::Result<Self> {
        let server = server.into();
        Ok(Self {
            stream: Some(BenchStream::connect(&server).await?),
            server,
            reader: ResponseReader::default(),
            buffer: vec![0; BUFFER_BYTES],
            filled: 0,
            answer: None,
        })
    }

    /// Sends a request and reads its answer; returns the status.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        let exchanged = self.try_exchange(request).await;
        let is_last = self.answer.as_ref().is_none_or(|answer| answer.last);
        if exchanged.is_err() || is_last {
            self.stream = None;
        }
        exchanged
    }

    /// The body of the last answer.
    pub(crate) fn body(&self) -> &[u8] {
        match &self.answer {
            Some(answer) => &self.buffer[answer.body.clone()],
            None => &[],
        }
    }

    async fn try_exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.drop_answer();
        let stream = if let Some(stream) = &mut self.stream {
            stream
        } else {
            self.filled = 0;
            self.reader = ResponseReader::default();
            self.stream
                .insert(BenchStream::connect(&self.server).await?)
        };
        stream.write_all(request).await?;
        loop {
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let received = stream.read(&mut self.buffer[self.filled..]).await?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.filled += received;
            let read = self.reader.read(&self.buffer[..self.filled]);
            if let Some(answer) = read.map_err(io::Error::other)? {
                let status = answer.status;
                self.answer = Some(answer);
                return Ok(status);
            }
        }
    }

    /// Bytes after the last answer would belong to the next one.
    fn drop_answer(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.buffer.copy_within(answer.end..self.filled, 0);
            self.filled -= answer.end;
        }
    }
}

impl BenchStream {
    async fn connect(server: &BenchAddress) -> io::Result<Self> {
        match server {
            BenchAddress::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            BenchAddress::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
        }
    }

    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer).await,
            Self::Unix(stream) => stream.read(buffer).await,
        }
    }
}
