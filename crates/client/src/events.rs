//! The client of the server's event stream (server-sent events).
//!
//! Invariant: an event is returned only after its closing blank line, and the buffer is bounded.
//! The stream does not reconnect: the caller decides from which event to continue.

use std::collections::VecDeque;

use http::{HeaderMap, HeaderValue, Method, header};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};

use crate::call::{Credential, refused};
use crate::client::plain;
use crate::connection::HttpConnection;
use crate::{Client, Error, Response};

/// The largest single event, all its lines together.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// One event. A later call passes `id` to continue after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamEvent {
    pub id: Option<String>,
    /// The name of the event; `message` if the server sent none.
    pub event: String,
    pub data: String,
}

/// An open stream of events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    parser: Parser,
    server: crate::Address,
    // Keeps the connection alive as long as the body.
    _connection: HttpConnection,
}

impl Client {
    /// Opens the stream, from now on or after `last_event_id`.
    pub async fn events(&self, last_event_id: Option<&str>) -> Result<Events, Error> {
        self.events_at("/events", last_event_id).await
    }

    /// The same at another path.
    pub async fn events_at(
        &self,
        path: &str,
        last_event_id: Option<&str>,
    ) -> Result<Events, Error> {
        self.events_with(path, last_event_id, Credential::Key).await
    }

    pub(crate) async fn events_with(
        &self,
        path: &str,
        last_event_id: Option<&str>,
        credential: Credential,
    ) -> Result<Events, Error> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        if let Some(id) = last_event_id {
            headers.insert("last-event-id", plain(id)?);
        }
        let request = self.build(Method::GET, path, headers, Bytes::new(), credential)?;
        let (connection, response) = self.within(self.timeout(), self.send(request)).await?;
        let (parts, body) = response.into_parts();
        if parts.status.as_u16() >= 400 {
            let read = self.read(body);
            let body = self.within(self.timeout(), read).await?;
            return Err(refused(&Response {
                status: parts.status,
                headers: parts.headers,
                body,
            }));
        }
        Ok(Events {
            body,
            parser: Parser::default(),
            server: self.address().clone(),
            _connection: connection,
        })
    }
}

impl Events {
    /// The next event; `None` when the server ended the stream. Cancel-safe: dropping the future
    /// loses no event.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, Error> {
        loop {
            if let Some(event) = self.parser.ready.pop_front() {
                return Ok(Some(event));
            }
            let frame = match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(cause)) => {
                    return Err(Error::Broken {
                        server: self.server.clone(),
                        cause,
                    });
                }
            };
            if let Some(bytes) = frame.data_ref() {
                self.parser.push(bytes).map_err(|()| Error::TooLarge {
                    server: self.server.clone(),
                    limit_bytes: EVENT_BYTES_MAX,
                })?;
            }
        }
    }
}

/// Parses bytes into complete events.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    after_carriage_return: bool,
    id: Option<String>,
    event: String,
    data: String,
    has_data: bool,
    ready: VecDeque<StreamEvent>,
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) -> Result<(), ()> {
        for &byte in bytes {
            let was_carriage_return =
                std::mem::replace(&mut self.after_carriage_return, byte == b'\r');
            match byte {
                // The second half of a line end that was already consumed.
                b'\n' if was_carriage_return => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    self.take_line(&String::from_utf8_lossy(&line));
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
                return Err(());
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) {
        if line.is_empty() {
            self.dispatch();
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "event" => value.clone_into(&mut self.event),
            "id" => self.id = Some(value.to_owned()),
            // Comments (an empty field name) keep the connection alive; other fields are ignored.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            self.ready.push_back(StreamEvent {
                // The last id applies to later events too, as the format requires.
                id: self.id.clone(),
                event: if event.is_empty() {
                    "message".to_owned()
                } else {
                    event
                },
                data,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stream: &str, expected: &[(Option<&str>, &str, &str)]) {
        let expected: Vec<StreamEvent> = expected
            .iter()
            .map(|(id, event, data)| StreamEvent {
                id: id.map(str::to_owned),
                event: (*event).to_owned(),
                data: (*data).to_owned(),
            })
            .collect();
        // In one piece and byte by byte must give the same.
        for piece in [stream.len().max(1), 1] {
            let mut parser = Parser::default();
            for bytes in stream.as_bytes().chunks(piece) {
                parser.push(bytes).unwrap();
            }
            assert_eq!(Vec::from(parser.ready), expected, "for {stream:?}");
        }
    }

    #[test]
    fn events_end_at_blank_lines_whatever_the_line_ending() {
        check(
            "id: 7\nevent: fact\ndata: {}\n\n",
            &[(Some("7"), "fact", "{}")],
        );
        check(
            "data:a\r\ndata: b\r\n\r\ndata:c\r\r",
            &[(None, "message", "a\nb"), (None, "message", "c")],
        );
        check("data\n\n", &[(None, "message", "")]);
    }

    #[test]
    fn comments_and_unfinished_events_give_nothing() {
        check(": keep-alive\n\n", &[]);
        check("data: half", &[]);
        check("event: only-a-name\n\n", &[]);
    }

    #[test]
    fn an_event_without_end_is_refused_instead_of_growing() {
        let mut parser = Parser::default();
        assert!(parser.push(&vec![b'x'; EVENT_BYTES_MAX]).is_ok());
        assert!(parser.push(b"x").is_err());
    }
}
