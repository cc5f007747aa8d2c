//! The query of a list: filters, page size, position.

use consign_kernel::error::Code;
use consign_kernel::ids::Seq;
use consign_kernel::limits;
use consign_kernel::state::{Cause, State};

use super::{QueryParams, cursor};
use crate::read::word;
use crate::wire;
use consign_web::reject::Reject;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    pub namespace: Option<String>,
    pub goal: Option<String>,
    pub state: Option<State>,
    pub before: Option<Seq>,
    pub limit: u32,
}

impl ListQuery {
    pub fn of(params: &QueryParams) -> Result<Self, Reject> {
        Ok(Self {
            namespace: params
                .get("namespace")
                .map(|name| wire::namespace(Some(name)))
                .transpose()?,
            goal: params.get("goal").map(|goal| goal.trim().to_owned()),
            state: params.get("status").map(state_named).transpose()?,
            before: params.get("cursor").map(cursor::page).transpose()?,
            limit: params
                .get("limit")
                .map_or(Ok(limits::PAGE_ITEMS_MAX), page_limit)?,
        })
    }
}

fn state_named(text: &str) -> Result<State, Reject> {
    let named = [
        State::Queued,
        State::Dispatched,
        State::Acked,
        State::DeadLetter,
    ]
    .into_iter()
    .find(|state| word(*state, Cause::None) == text);
    named.ok_or_else(|| {
        Reject::new(
            Code::InvalidStatus,
            "status must be open, claimed, fulfilled or dead.",
        )
    })
}

pub(super) fn page_limit(text: &str) -> Result<u32, Reject> {
    text.parse()
        .ok()
        .filter(|limit| (1..=limits::PAGE_ITEMS_MAX).contains(limit))
        .ok_or_else(|| {
            Reject::new(
                Code::InvalidLimit,
                "limit must be an integer from 1 to 100.",
            )
        })
}
