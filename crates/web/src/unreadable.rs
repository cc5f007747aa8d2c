//! Responses to requests with a malformed or too large head, which never reach a service.
//!
//! hyper writes these responses itself, without a body, and offers no hook. They are detected before they are sent,
//! by the absence of a header that all other responses have, and get the usual headers and an error body.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use tokio::io::AsyncWrite;

use super::headers;

/// Every response that passed the layers has this header.
const MARK: &[u8] = b"x-intent-version";

/// The replacement of a bare response, and how much of it is written.
#[derive(Debug)]
pub(super) struct ReplacementResponse {
    text: Vec<u8>,
    written: usize,
}

impl ReplacementResponse {
    /// `None` if the bytes are not the beginning of a bare error response.
    pub(super) fn of(bytes: &[u8], body: &str) -> Option<Self> {
        if !bytes.starts_with(b"HTTP/1.1 4") && !bytes.starts_with(b"HTTP/1.0 4") {
            return None;
        }
        if bytes
            .windows(MARK.len())
            .any(|window| window.eq_ignore_ascii_case(MARK))
        {
            return None;
        }
        let line_end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let mut common = HeaderMap::new();
        headers::put(&mut common);
        let mut text = bytes[..line_end].to_vec();
        text.extend_from_slice(b"\r\nconnection: close\r\ncontent-type: application/json\r\n");
        for (name, value) in &common {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(format!("content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        Some(Self { text, written: 0 })
    }

    /// Writes until the replacement is complete.
    pub(super) fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.written < self.text.len() {
            let rest = &self.text[self.written..];
            match ready!(Pin::new(&mut *stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_refusal_is_given_headers_and_a_body() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n";
        let replacement = ReplacementResponse::of(bare, "{}").unwrap();
        let text = String::from_utf8(replacement.text).unwrap();
        assert!(text.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"));
        assert!(
            text.contains("x-frame-options: DENY\r\n")
                && text.ends_with("content-length: 2\r\n\r\n{}")
        );
    }

    #[test]
    fn answers_of_ours_and_bodies_pass_as_they_are() {
        for bytes in [
            &b"HTTP/1.1 404 Not Found\r\nX-Intent-Version: 2.1\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"{\"error\":{}}",
            b"",
        ] {
            assert!(ReplacementResponse::of(bytes, "{}").is_none());
        }
    }
}
