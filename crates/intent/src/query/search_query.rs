//! The query of a search of operators: filter, page size, place.

use consign_engine::SearchPlace;
use consign_kernel::error::Code;
use consign_kernel::filter::Filter;
use consign_kernel::ids::{Micros, Seq};
use consign_kernel::limits;

use super::QueryParams;
use super::list_query::page_limit;
use consign_web::reject::Reject;

#[derive(Debug, Clone, PartialEq)]
pub struct SearchQuery {
    pub filter: Filter,
    pub after: Option<SearchPlace>,
    pub limit: u32,
}

impl SearchQuery {
    pub fn of(params: &QueryParams) -> Result<Self, Reject> {
        Ok(Self {
            filter: filter(params.get("filter").unwrap_or_default())?,
            after: params.get("cursor").map(place).transpose()?,
            limit: params
                .get("limit")
                .map_or(Ok(limits::PAGE_ITEMS_MAX), page_limit)?,
        })
    }
}

pub fn filter(text: &str) -> Result<Filter, Reject> {
    Filter::parse(text)
        .map_err(|error| Reject::new(Code::InvalidFilter, format!("filter, {error}.")))
}

/// A place as a client receives it: the sequence, and before it the end of a dead letter.
pub fn place_text(place: SearchPlace) -> String {
    match place.settled_at {
        Some(at) => format!("{}.{}", at.0, place.seq.0),
        None => place.seq.0.to_string(),
    }
}

fn place(text: &str) -> Result<SearchPlace, Reject> {
    let (settled_at, seq) = match text.split_once('.') {
        Some((at, seq)) => (Some(at.parse().map(Micros)), seq),
        None => (None, text),
    };
    let place = || {
        Some(SearchPlace {
            settled_at: settled_at.transpose().ok()?,
            seq: Seq(seq.parse().ok()?),
        })
    };
    place().ok_or_else(|| {
        Reject::new(
            Code::InvalidCursor,
            "cursor must be one that an earlier page gave; leave it out to begin.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_written_is_read_as_the_same_place() {
        for (at, seq) in [(None, 7), (Some(1_794_736_915_312_204), 7)] {
            let written = SearchPlace {
                settled_at: at.map(Micros),
                seq: Seq(seq),
            };
            assert_eq!(place(&place_text(written)).unwrap(), written);
        }
        for text in ["", "x", "1.", ".1", "1.2.3", "-1"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
