//! The input of the router target: a script of requests.
//!
//! Requests are separated by lines `%%`. Each is a line with method and target, header lines, an empty line and the
//! body. `WAIT n` instead of a request advances time by n seconds. `{id}`, `{token}`, `{key}` and `{signature}` stand
//! for values that a fuzzer cannot guess: the last id, claim token and API key in a response, and the valid signature
//! of the request. Invalid requests are skipped, because hyper would refuse them.

use consign_client::{SecretKey, signature};
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::headers;

const BETWEEN: &[u8] = b"%%\n";
/// Longer scripts find nothing new and slow the fuzzer down.
const STEPS_MAX: usize = 12;

#[derive(Debug)]
pub(crate) enum ScriptStep<'a> {
    Wait { seconds: i64 },
    Send(&'a [u8]),
}

#[derive(Debug)]
pub(crate) struct ScriptRequest {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Values of earlier responses.
#[derive(Debug, Default)]
pub(crate) struct SeenValues {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) key: String,
}

pub(crate) fn steps(script: &[u8]) -> Vec<ScriptStep<'_>> {
    let mut steps = Vec::new();
    let mut rest = script;
    while !rest.is_empty() && steps.len() < STEPS_MAX {
        let end = find(rest, BETWEEN).unwrap_or(rest.len());
        let (step, after) = rest.split_at(end);
        rest = after.strip_prefix(BETWEEN).unwrap_or(after);
        let seconds = step.strip_prefix(b"WAIT ").map(|text| {
            let text = str::from_utf8(text.trim_ascii()).unwrap_or_default();
            // Up to a few days: long enough for every lease and retention to end.
            i64::from(text.parse::<u32>().unwrap_or(1) % 1_000_000)
        });
        steps.push(match seconds {
            Some(seconds) => ScriptStep::Wait { seconds },
            None => ScriptStep::Send(step),
        });
    }
    steps
}

impl ScriptRequest {
    pub(crate) fn read(text: &[u8], seen: &SeenValues) -> Option<Self> {
        let text = replaced(text, b"{id}", seen.id.as_bytes());
        let text = replaced(&text, b"{token}", seen.token.as_bytes());
        let text = replaced(&text, b"{key}", seen.key.as_bytes());
        let (head, body) = match find(&text, b"\n\n") {
            Some(end) => (&text[..end], &text[end + 2..]),
            None => (text.as_slice(), &[][..]),
        };
        let (line, lines) = match find(head, b"\n") {
            Some(end) => (&head[..end], &head[end + 1..]),
            None => (head, &[][..]),
        };
        let (method, target) = str::from_utf8(line).ok()?.split_once(' ')?;
        let mut request = Self {
            method: method.parse().ok()?,
            uri: target.parse().ok()?,
            headers: headers::parse(lines),
            body: body.to_vec(),
        };
        request.sign();
        Some(request)
    }

    fn sign(&mut self) {
        let wanted = self.headers.get("x-signature");
        if wanted.is_none_or(|value| value != "{signature}") {
            return;
        }
        let text = |name: &str| {
            let value = self.headers.get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default()
        };
        let target = self
            .uri
            .path_and_query()
            .map_or("", |target| target.as_str());
        let made = signature(
            &SecretKey::new(text("x-api-key")),
            self.method.as_str(),
            target,
            text("x-timestamp"),
            text("x-nonce"),
            &self.body,
        );
        let made = HeaderValue::try_from(made).expect("hex digits are a header value");
        self.headers.insert("x-signature", made);
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

fn replaced(text: &[u8], name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = find(rest, name) {
        whole.extend_from_slice(&rest[..at]);
        whole.extend_from_slice(value);
        rest = &rest[at + name.len()..];
    }
    whole.extend_from_slice(rest);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_into_requests_and_waits() {
        let script = b"GET /health\n%%\nWAIT 61\n%%\nPOST /x\na: b\n\nbody\n";
        let shown = format!("{:?}", steps(script));
        assert!(shown.starts_with("[Send("), "{shown}");
        assert!(shown.contains("Wait { seconds: 61 }"), "{shown}");
    }

    #[test]
    fn what_answers_gave_is_put_in_and_the_signature_made() {
        let seen = SeenValues {
            id: "one".to_owned(),
            token: "two".to_owned(),
            key: "three".to_owned(),
        };
        let text =
            b"POST /fulfill/{id}\nx-api-key: {key}\nx-signature: {signature}\n\n{token} {token}";
        let request = ScriptRequest::read(text, &seen).unwrap();
        assert_eq!(request.uri, "/fulfill/one");
        assert_eq!(request.body, b"two two");
        assert_eq!(request.headers["x-api-key"], "three");
        assert_eq!(request.headers["x-signature"].len(), 64);
        assert!(ScriptRequest::read(b"nothing", &seen).is_none());
    }
}
