//! Parses HTTP/1.1 answers from a growing buffer, and extracts the few members that a workload needs.
//!
//! Invariant: an answer is complete only when all bytes of its body are there; bytes after it belong to the next one.
//! Only `Content-Length` is supported: a chunked answer is refused, because the server sends none on these routes, and
//! a guess would corrupt the counts.

use std::ops::Range;

/// More header bytes than the server sends.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// More than the largest batch of the largest payloads.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Why an answer cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadResponse {
    #[error("the answer is chunked, which is not supported")]
    Chunked,
    #[error("the answer has neither a length nor a status without a body")]
    NoLength,
    #[error("the answer is not HTTP/1.1")]
    NotHttp,
    #[error("the answer is too large")]
    TooLarge,
}

/// A complete answer; `body` is its range in the buffer, and `end` the start of the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) body: Range<usize>,
    pub(crate) end: usize,
    /// The server will close the connection.
    pub(crate) last: bool,
}

/// The parsing state of the answer at the beginning of the buffer.
#[derive(Debug, Default)]
pub(crate) struct ResponseReader {
    /// Bytes that were already searched for the end of the head.
    searched: usize,
    answer: Option<ResponseHead>,
}

impl ResponseReader {
    /// Examines all bytes received so far; `None` means that more are needed.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Option<ResponseHead>, BadResponse> {
        if self.answer.is_none() {
            // The blank line may be split between two reads.
            let from = self.searched.saturating_sub(3);
            let Some(at) = find(&bytes[from..], b"\r\n\r\n") else {
                self.searched = bytes.len();
                return if bytes.len() > HEAD_BYTES_MAX {
                    Err(BadResponse::TooLarge)
                } else {
                    Ok(None)
                };
            };
            self.answer = Some(head(&bytes[..from + at])?);
        }
        let complete = self
            .answer
            .as_ref()
            .is_some_and(|answer| answer.end <= bytes.len());
        if !complete {
            return Ok(None);
        }
        self.searched = 0;
        Ok(self.answer.take())
    }
}

/// Parses a head without its blank line.
fn head(bytes: &[u8]) -> Result<ResponseHead, BadResponse> {
    let mut lines = bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    let status = lines
        .next()
        .and_then(|line| line.strip_prefix(b"HTTP/1.1 "))
        .and_then(|rest| number(rest.get(..3)?))
        .and_then(|status| u16::try_from(status).ok())
        .ok_or(BadResponse::NotHttp)?;
    let (mut length, mut last) = (None, false);
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return Err(BadResponse::NotHttp);
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        // Comparing lengths first skips most headers cheaply.
        if name.len() == 14 && name.eq_ignore_ascii_case(b"content-length") {
            length = Some(number(value).ok_or(BadResponse::NotHttp)?);
        } else if name.len() == 17 && name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Err(BadResponse::Chunked);
        } else if name.len() == 10 && name.eq_ignore_ascii_case(b"connection") {
            last = value.eq_ignore_ascii_case(b"close");
        }
    }
    let length = match (status, length) {
        (204 | 304, _) => 0,
        (_, Some(length)) => length,
        (_, None) => return Err(BadResponse::NoLength),
    };
    if length > BODY_BYTES_MAX {
        return Err(BadResponse::TooLarge);
    }
    let begin = bytes.len() + 4;
    Ok(ResponseHead {
        status,
        body: begin..begin + length,
        end: begin + length,
        last,
    })
}

fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 12 {
        return None;
    }
    digits.iter().try_fold(0_usize, |sum, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        Some(sum * 10 + usize::from(digit))
    })
}

pub(crate) fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

/// Id and token of each claimed intent in a body. The server writes them first and next to each other; settled intents
/// have no token and are skipped.
pub(crate) fn leases(body: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    const BETWEEN: &[u8] = b"\",\"claim_token\":\"";
    let mut rest = body;
    std::iter::from_fn(move || {
        loop {
            let (id, after) = text_member(rest, b"\"id\":\"")?;
            rest = after;
            if let Some(from_token) = after.strip_prefix(BETWEEN) {
                let end = from_token.iter().position(|byte| *byte == b'"')?;
                rest = &from_token[end..];
                return Some((id, &from_token[..end]));
            }
        }
    })
}

/// How many items of a batch the server refused.
pub(crate) fn refused_items(body: &[u8]) -> u64 {
    let wanted = b"\"ok\":false";
    let matches = body.windows(wanted.len()).filter(|part| part == wanted);
    matches.count() as u64
}

/// Whether the answer to execute is final; the receipt in it has its own state, after that of the answer.
pub(crate) fn is_settled(body: &[u8]) -> bool {
    text_member(body, b"\"state\":\"").is_some_and(|(state, _)| state == b"settled")
}

/// The number after `name`, such as `"sent_ns":`.
pub(crate) fn number_member(body: &[u8], name: &[u8]) -> Option<u64> {
    let rest = &body[find(body, name)? + name.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// The text after `opening`, and the rest, including the closing quote.
pub(crate) fn text_member<'a>(body: &'a [u8], opening: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let rest = &body[find(body, opening)? + opening.len()..];
    let end = rest.iter().position(|byte| *byte == b'"')?;
    Some((&rest[..end], &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\
        content-length: 11\r\n\r\n{\"ok\":true}HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";

    #[test]
    fn an_answer_split_at_any_byte_is_read_and_what_follows_is_left() {
        let first_end = TWO.len() - find(TWO, b"204").map_or(0, |at| TWO.len() - at) - 9;
        for cut in 0..=TWO.len() {
            let mut reader = ResponseReader::default();
            let early = reader.read(&TWO[..cut]).unwrap();
            assert_eq!(early.is_some(), cut >= first_end, "cut at {cut}");
            let first = early.or_else(|| reader.read(TWO).unwrap()).unwrap();
            assert_eq!((first.status, first.last), (201, false));
            assert_eq!(&TWO[first.body.clone()], b"{\"ok\":true}");
            let second = reader.read(&TWO[first.end..]).unwrap().unwrap();
            assert_eq!((second.status, second.last), (204, true));
            assert_eq!(first.end + second.end, TWO.len());
        }
    }

    #[test]
    fn one_byte_at_a_time_gives_the_same() {
        let mut reader = ResponseReader::default();
        let found: Vec<usize> = (0..=TWO.len())
            .filter(|length| reader.read(&TWO[..*length]).unwrap().is_some())
            .collect();
        assert_eq!(found[0], find(TWO, b"}").unwrap() + 1);
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        let refused = |text: &[u8]| ResponseReader::default().read(text).unwrap_err();
        assert_eq!(
            refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            BadResponse::Chunked
        );
        assert_eq!(
            refused(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
            BadResponse::NoLength
        );
        assert_eq!(refused(b"SSH-2.0-x\r\n\r\n"), BadResponse::NotHttp);
        assert_eq!(
            refused(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"),
            BadResponse::TooLarge
        );
        assert_eq!(
            refused(&vec![b'x'; HEAD_BYTES_MAX + 1]),
            BadResponse::TooLarge
        );
    }

    #[test]
    fn leases_are_found_and_settled_items_are_not_taken_for_leases() {
        let body = br#"{"items":[{"id":"a1","ok":true},{"id":"a2","ok":false,"error":{}}],"intents":[{"id":"b1","claim_token":"t1","payload":1},{"id":"b2","claim_token":"t2","payload":{"x":"y"}}]}"#;
        let found: Vec<_> = leases(body).collect();
        assert_eq!(found, [(&b"b1"[..], &b"t1"[..]), (&b"b2"[..], &b"t2"[..])]);
        assert_eq!(refused_items(body), 1);
        assert_eq!(leases(b"{}").count(), 0);
    }

    #[test]
    fn only_the_answers_own_state_says_that_it_is_settled() {
        assert!(is_settled(br#"{"ok":true,"state":"settled","receipt":{}}"#));
        let early = br#"{"ok":true,"state":"executing","receipt":{"state":"settled"}}"#;
        assert!(!is_settled(early));
        assert!(!is_settled(b"{}"));
    }

    #[test]
    fn a_number_is_found_by_its_name() {
        let name = b"\"sent_ns\":";
        assert_eq!(number_member(b"{\"sent_ns\":123,\"x\":1}", name), Some(123));
        assert_eq!(number_member(b"{\"x\":1}", name), None);
    }
}
