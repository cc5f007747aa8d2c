//! Fields of a JSON body. Text is trimmed, and blank text counts as absent.

use http::HeaderMap;

use super::access::header;
use crate::directory::{FieldUpdate, NonceSignature, TimedSignature};
use crate::text::BeamValue;

/// The first of these fields that is a string, unless it is blank.
pub(super) fn text(body: &BeamValue, names: &[&str]) -> Option<String> {
    let mut strings = names.iter().filter_map(|name| body.get(name)?.as_str());
    let text = strings.next()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// What an update does with a field: blank text and null clear it. A value of another kind is no text, and keeps it.
pub(super) fn update(body: &BeamValue, names: &[&str]) -> FieldUpdate {
    let Some(value) = names.iter().find_map(|name| body.get(name)) else {
        return FieldUpdate::Keep;
    };
    match value.as_str().map(str::trim) {
        Some("") => FieldUpdate::Clear,
        Some(text) => FieldUpdate::Set(text.to_owned()),
        None if value.is_null() => FieldUpdate::Clear,
        None => FieldUpdate::Keep,
    }
}

/// The signature of a body that also has the time of the signature.
pub(super) fn timed_signature(body: &BeamValue) -> Option<TimedSignature> {
    Some(TimedSignature {
        signature: text(body, &["signature"])?,
        timestamp: text(body, &["timestamp"])?,
    })
}

/// The signature in the headers of a request.
pub(super) fn header_signature(headers: &HeaderMap) -> Option<NonceSignature> {
    let field = |name| {
        let text = header(headers, name)?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    Some(NonceSignature {
        signature: field("x-beam-signature")?,
        timestamp: field("x-beam-timestamp")?,
        nonce: field("x-beam-nonce")?,
    })
}
