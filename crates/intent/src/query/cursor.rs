//! Positions in a list and in the event stream, as clients receive them and send them back.
//!
//! Invariant: a position that was written is read as the same position.

use consign_kernel::error::Code;
use consign_kernel::ids::{FactSeq, Seq};

use consign_web::reject::Reject;

/// The position at which the next page of a list begins.
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
