//! Places in a list and in the event stream, as clients are told them and send them back.
//!
//! Invariant: what is written here is read here as the same place.

use consign_kernel::error::Code;
use consign_kernel::ids::{FactSeq, Seq};

use crate::intent::reject::Reject;

/// Where the next page of a list begins.
pub fn page_text(place: Seq) -> String {
    place.0.to_string()
}

pub fn page(text: &str) -> Result<Seq, Reject> {
    text.parse().map(Seq).map_err(|_| {
        Reject::new(
            Code::InvalidCursor,
            "cursor must be one that an earlier page gave; leave it out to begin.",
        )
    })
}

/// The id of an event.
pub fn event_text(place: FactSeq) -> String {
    place.0.to_string()
}

pub fn event(text: &str) -> Result<FactSeq, Reject> {
    text.parse().map(FactSeq).map_err(|_| {
        Reject::new(
            Code::InvalidCursor,
            "Last-Event-ID must be the id of an event seen before.",
        )
    })
}
