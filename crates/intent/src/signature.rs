//! Verification of the HMAC-SHA256 signature of a request.
//!
//! The signature covers method, canonical path, timestamp, nonce and body, joined by newlines; its key is the API
//! key.
//! Invariant: a request passes only with a digest over exactly the received bytes and a timestamp inside the window.
//! Two requests with different meanings never have the same signed bytes: no part but the last contains a newline,
//! and a decoded path is accepted only where it cannot be another raw path. The ledger burns the nonce, because that
//! must commit together with the work.

use std::borrow::Cow;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

/// The allowed difference between a timestamp and our clock, in either direction.
pub const WINDOW_SECONDS: f64 = 300.0;

pub static SIGNATURE_HEADER: HeaderName = HeaderName::from_static("x-signature");
pub static TIMESTAMP_HEADER: HeaderName = HeaderName::from_static("x-timestamp");
pub static NONCE_HEADER: HeaderName = HeaderName::from_static("x-nonce");

/// The signed parts of a request, and the signature. An empty header counts as missing.
#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    pub method: &'a str,
    /// As received, still percent-encoded, without the query.
    pub path: &'a str,
    /// As received, without the `?`.
    pub query: &'a str,
    pub timestamp: Option<&'a [u8]>,
    pub nonce: Option<&'a [u8]>,
    pub signature: Option<&'a [u8]>,
    pub body: &'a [u8],
}

impl<'a> SignedRequest<'a> {
    pub fn new(parts: &'a http::request::Parts, body: &'a [u8]) -> Self {
        Self {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or_default(),
            timestamp: present(&parts.headers, &TIMESTAMP_HEADER),
            nonce: present(&parts.headers, &NONCE_HEADER),
            signature: present(&parts.headers, &SIGNATURE_HEADER),
            body,
        }
    }
}

/// Whether a request is signed. A signature is verified even where none is required.
pub fn is_signed(headers: &HeaderMap) -> bool {
    present(headers, &SIGNATURE_HEADER).is_some()
}

fn present<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let value = headers.get(name)?.as_bytes();
    (!value.is_empty()).then_some(value)
}

/// The nonce of a verified request, to be burnt for the caller's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(pub String);

/// Why a signature was refused. The ledger detects replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("Missing required signature headers.")]
    MissingHeaders,
    #[error("Invalid timestamp")]
    InvalidTimestamp,
    #[error("Stale timestamp")]
    StaleTimestamp,
    #[error("Bad signature")]
    BadSignature,
}

impl SignatureError {
    /// The message that existing clients and tests expect.
    pub const fn message(self) -> &'static str {
        match self {
            Self::MissingHeaders => "Missing required signature headers.",
            Self::InvalidTimestamp => "Invalid timestamp",
            Self::StaleTimestamp => "Stale timestamp",
            Self::BadSignature => "Bad signature",
        }
    }
}

/// Verifies `signed` with the API key. `now_seconds` is Unix time with its fraction.
pub fn verify(
    signed: &SignedRequest<'_>,
    api_key: &str,
    now_seconds: f64,
) -> Result<Nonce, SignatureError> {
    let headers = [signed.timestamp, signed.nonce, signed.signature];
    let [
        Some(timestamp @ [_, ..]),
        Some(nonce @ [_, ..]),
        Some(signature @ [_, ..]),
    ] = headers
    else {
        return Err(SignatureError::MissingHeaders);
    };
    if (now_seconds - unix_seconds(timestamp)?).abs() > WINDOW_SECONDS {
        return Err(SignatureError::StaleTimestamp);
    }
    let paths = canonical_paths(signed.path, signed.query);
    if paths.has_control_character {
        return Err(SignatureError::BadSignature);
    }
    let fits = |path: &str| -> bool {
        let method = signed.method.to_ascii_uppercase();
        let message = [
            method.as_bytes(),
            path.as_bytes(),
            timestamp,
            nonce,
            signed.body,
        ];
        hex_digest(message, api_key).ct_eq(signature).into()
    };
    let decoded = paths.decoded.as_deref().filter(|path| *path != paths.raw);
    if !(decoded.is_some_and(fits) || fits(&paths.raw)) {
        return Err(SignatureError::BadSignature);
    }
    let nonce = std::str::from_utf8(nonce).map_err(|_not_text| SignatureError::BadSignature)?;
    Ok(Nonce(nonce.to_owned()))
}

/// An optional minus and digits. A number beyond any clock is still an integer, so it is stale rather than invalid.
fn unix_seconds(timestamp: &[u8]) -> Result<f64, SignatureError> {
    let digits = timestamp.strip_prefix(b"-").unwrap_or(timestamp);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(SignatureError::InvalidTimestamp);
    }
    std::str::from_utf8(timestamp)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(SignatureError::InvalidTimestamp)
}

/// The HMAC of `parts` joined by newlines, as 64 lowercase hex digits.
fn hex_digest(parts: [&[u8]; 5], api_key: &str) -> [u8; 64] {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(api_key.as_bytes()).expect("HMAC takes a key of any length");
    for (nth, part) in parts.into_iter().enumerate() {
        if nth > 0 {
            mac.update(b"\n");
        }
        mac.update(part);
    }
    let mut digits = [0; 64];
    HEXLOWER.encode_mut(&mac.finalize().into_bytes(), &mut digits);
    digits
}

/// The paths that a client may have signed: decoded and raw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalPaths<'a> {
    /// Absent if it is ambiguous: with a `%` and two hex digits it looks like a raw path, with a `?` like a path and
    /// a query, and all paths that are not UTF-8 look alike.
    pub decoded: Option<Cow<'a, str>>,
    pub raw: Cow<'a, str>,
    /// The decoded path contains a newline or another control character.
    pub has_control_character: bool,
}

/// Both paths, with the canonical query if there is one.
pub fn canonical_paths<'a>(raw_path: &'a str, raw_query: &str) -> CanonicalPaths<'a> {
    let query = canonical_query(raw_query);
    let with_query = |path: Cow<'a, str>| match query.as_str() {
        "" => path,
        query => format!("{path}?{query}").into(),
    };
    let path = decoded(raw_path.into());
    let is_ambiguous = path != raw_path
        && (has_escape(&path) || path.contains(['?', char::REPLACEMENT_CHARACTER]));
    CanonicalPaths {
        has_control_character: path.contains(char::is_control),
        decoded: (!is_ambiguous).then(|| with_query(path)),
        raw: with_query(raw_path.into()),
    }
}

/// The query as it is signed: sorted by decoded key, repeated keys in their original order, blank values kept, all
/// but the unreserved characters percent-encoded in upper case.
pub fn canonical_query(raw: &str) -> String {
    let mut pairs: Vec<_> = raw
        .split('&')
        .filter(|segment| !segment.is_empty())
        .map(|segment| {
            let (key, value) = segment.split_once('=').unwrap_or((segment, ""));
            (form_decoded(key), form_decoded(value))
        })
        .collect();
    // Ordering: the sort is stable, which keeps the order of repeated keys.
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut canonical = String::with_capacity(raw.len() + raw.len() / 2);
    for (key, value) in pairs {
        if !canonical.is_empty() {
            canonical.push('&');
        }
        encode_into(&mut canonical, &key);
        canonical.push('=');
        encode_into(&mut canonical, &value);
    }
    canonical
}

fn form_decoded(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        decoded(text.replace('+', " ").into())
    } else {
        decoded(text.into())
    }
}

/// Percent-decodes a text. A `%` without two hex digits stays, and invalid UTF-8 becomes replacement characters, as
/// in the reference server.
fn decoded(text: Cow<'_, str>) -> Cow<'_, str> {
    if !text.contains('%') {
        return text;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = match (first, after) {
            (b'%', [high, low, ..]) => hex_value(*high).zip(hex_value(*low)),
            _ => None,
        };
        if let Some((high, low)) = escaped {
            bytes.push(high << 4 | low);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(mixed) => String::from_utf8_lossy(mixed.as_bytes())
            .into_owned()
            .into(),
    }
}

/// Whether the text can be decoded once more. A `%` without two hex digits means itself in a raw path too.
fn has_escape(path: &str) -> bool {
    let mut after = path.split('%').skip(1).map(str::as_bytes);
    after.any(|rest| match rest {
        [high, low, ..] => hex_value(*high).zip(hex_value(*low)).is_some(),
        _ => false,
    })
}

const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn encode_into(canonical: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'~') {
            canonical.push(char::from(byte));
        } else {
            canonical.push('%');
            canonical.push(char::from(DIGITS[usize::from(byte >> 4)]));
            canonical.push(char::from(DIGITS[usize::from(byte & 0xf)]));
        }
    }
}

#[cfg(test)]
mod tests;
