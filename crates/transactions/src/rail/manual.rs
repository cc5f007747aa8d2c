//! Effects that the caller executes and reports itself.
//!
//! An instance belongs to one transaction and returns what was reported, so that a report is handled like the answer of
//! any rail. Receipts name this rail, because they prove only that the caller reported the outcome.

use serde::{Deserialize, Serialize};

use super::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFailure, RailFuture, RailReport,
    RefundOutcome,
};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

/// The progress that the caller reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportedStatus {
    Pending,
    Executing,
    Executed,
    Settled,
    /// Nothing was charged.
    Failed,
    Compensated,
}

impl ReportedStatus {
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Executing,
        Self::Executed,
        Self::Settled,
        Self::Failed,
        Self::Compensated,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Executing => "executing",
            Self::Executed => "executed",
            Self::Settled => "settled",
            Self::Failed => "failed",
            Self::Compensated => "compensated",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Whether `next` may be reported after this status.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => matches!(next, Self::Executing | Self::Failed),
            Self::Executing => matches!(next, Self::Executed | Self::Failed),
            Self::Executed => matches!(next, Self::Settled | Self::Compensated | Self::Failed),
            Self::Settled | Self::Failed => matches!(next, Self::Compensated),
            Self::Compensated => false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ManualRail {
    reported: ReportedStatus,
    /// Why it failed, as reported by the caller.
    error: Option<String>,
}

impl ManualRail {
    pub const NAME: &'static str = "manual";

    pub fn new(reported: ReportedStatus, error: Option<String>) -> Self {
        Self { reported, error }
    }

    fn report(&self) -> RailReport {
        match self.reported {
            ReportedStatus::Pending | ReportedStatus::Executing | ReportedStatus::Compensated => {
                RailReport::of(RailOutcome::Unknown)
            }
            ReportedStatus::Executed => RailReport::of(RailOutcome::Processing),
            ReportedStatus::Settled => RailReport::of(RailOutcome::Succeeded),
            ReportedStatus::Failed => {
                let RailFailure { code, message } = self.failure();
                RailReport::of(RailOutcome::Failed).with_failure(code, message)
            }
        }
    }

    fn failure(&self) -> RailFailure {
        let unsaid = || "the caller reported that it failed".to_owned();
        RailFailure {
            code: "reported_failed".to_owned(),
            message: self.error.clone().unwrap_or_else(unsaid),
        }
    }
}

fn answer<T: Send + 'static>(value: T) -> RailFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

impl Rail for ManualRail {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn prepare<'a>(&'a self, _: &'a Charge) -> RailFuture<'a, RailReport> {
        answer(self.report())
    }

    fn confirm<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        answer(self.report())
    }

    fn capture<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        answer(self.report())
    }

    fn look_up<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        answer(self.report())
    }

    /// The caller has refunded it before asking.
    fn cancel<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, Fenced> {
        answer(Fenced::Cancelled)
    }

    fn refund<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RefundOutcome> {
        answer(RefundOutcome::Done { refund_id: None })
    }

    fn parse_callback(&self, _: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        Err(Problem::NotFound {
            what: "callback of this rail",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::AtpState;

    #[test]
    fn words_read_back() {
        for one in ReportedStatus::ALL {
            assert_eq!(ReportedStatus::parse(one.word()), Some(one));
            let stored = serde_json::to_string(&one).unwrap();
            assert_eq!(stored, format!("\"{}\"", one.word()));
        }
    }

    /// A legal report never requires a transition that the ledger refuses.
    #[test]
    fn reports_follow_the_edges_of_the_protocol() {
        let state = |one: ReportedStatus| match one {
            ReportedStatus::Pending | ReportedStatus::Executing => AtpState::Executing,
            ReportedStatus::Executed => AtpState::Executed,
            ReportedStatus::Settled => AtpState::Settled,
            ReportedStatus::Failed | ReportedStatus::Compensated => AtpState::Compensated,
        };
        for from in ReportedStatus::ALL {
            for to in ReportedStatus::ALL
                .into_iter()
                .filter(|to| from.may_become(*to))
            {
                let (from, to) = (state(from), state(to));
                assert!(from == to || from.may_become(to), "{from:?} to {to:?}");
            }
        }
    }
}
