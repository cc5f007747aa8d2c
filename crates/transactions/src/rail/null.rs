//! A rail without effect that succeeds at once: for tests, benchmarks and actions without payment.

use super::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFuture, RailReport, RefundOutcome,
};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

#[derive(Clone, Copy, Debug, Default)]
pub struct NullRail;

fn answer<T: Send + 'static>(value: T) -> RailFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

impl Rail for NullRail {
    fn name(&self) -> &'static str {
        "null"
    }

    fn prepare<'a>(&'a self, _: &'a Charge) -> RailFuture<'a, RailReport> {
        answer(RailReport::of(RailOutcome::Unconfirmed))
    }

    fn confirm<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        answer(RailReport::of(RailOutcome::Succeeded))
    }

    fn capture<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        answer(RailReport::of(RailOutcome::Succeeded))
    }

    /// Nothing can fail, so a begun payment is done.
    fn look_up<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, RailReport> {
        answer(RailReport::of(RailOutcome::Succeeded))
    }

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
