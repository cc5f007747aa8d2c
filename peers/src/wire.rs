//! One connection: bytes out, whole frames in.
//!
//! A protocol gives a parser that looks at the bytes at hand and takes one frame or asks for more. The parser keeps no
//! state, so a frame may arrive in any number of pieces; tests cut each protocol's frames at every byte.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Error;

/// A frame and how many bytes it took; `None` when it is not complete yet.
pub(crate) type Parsed<T> = Result<Option<(T, usize)>, Error>;

#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    inbox: Vec<u8>,
    /// Bytes before this are consumed.
    start: usize,
}

impl Wire {
    pub(crate) async fn connect(port: u16) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .map_err(Error::io(format!("connecting to port {port}")))?;
        stream
            .set_nodelay(true)
            .map_err(Error::io("setting TCP_NODELAY"))?;
        Ok(Self {
            stream,
            inbox: Vec::with_capacity(4096),
            start: 0,
        })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream
            .write_all(bytes)
            .await
            .map_err(Error::io("sending"))
    }

    pub(crate) async fn next<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<T>) -> Result<T, Error> {
        loop {
            if let Some((frame, length)) = parse(&self.inbox[self.start..])? {
                self.start += length;
                if self.start == self.inbox.len() {
                    self.inbox.clear();
                    self.start = 0;
                }
                return Ok(frame);
            }
            let count = self
                .stream
                .read_buf(&mut self.inbox)
                .await
                .map_err(Error::io("receiving"))?;
            if count == 0 {
                return Err(Error::Answer("the server closed the connection".to_owned()));
            }
        }
    }
}

/// The line at the start of `bytes` without its CR LF, and the length with it.
pub(crate) fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

/// The `index`th word of a line, as a number.
pub(crate) fn number(line: &[u8], index: usize) -> Result<usize, Error> {
    let text = String::from_utf8_lossy(line);
    let word = text.split(' ').nth(index);
    word.and_then(|word| word.parse().ok())
        .ok_or_else(|| Error::unexpected(&format!("a number as word {index}"), line))
}

#[cfg(test)]
pub(crate) mod cut {
    use super::Parsed;

    /// Gives the parser every prefix of `frame`, then the frame alone, then with a stranger behind it.
    pub(crate) fn everywhere<T>(frame: &[u8], parse: impl Fn(&[u8]) -> Parsed<T>) -> T {
        for end in 0..frame.len() {
            let early = parse(&frame[..end]).unwrap();
            assert!(early.is_none(), "taken for whole after {end} bytes");
        }
        let (_, used) = parse(frame).unwrap().expect("the frame is whole");
        assert_eq!(used, frame.len());
        let (parsed, used) = parse(&[frame, b"+next"].concat()).unwrap().unwrap();
        assert_eq!(used, frame.len());
        parsed
    }
}
