//! No effect at all, at once: for tests, benchmarks and actions that need no payment.

use super::{Asked, Charge, Fenced, Hint, Message, Rail, Refunded, Report};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

fn answer<T: Send + 'static>(value: T) -> Asked<'static, T> {
    Box::pin(std::future::ready(value))
}

impl Rail for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn prepare<'a>(&'a self, _: &'a Charge) -> Asked<'a, Report> {
        answer(Report::of(RailOutcome::Unconfirmed))
    }

    fn confirm<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> Asked<'a, Report> {
        answer(Report::of(RailOutcome::Succeeded))
    }

    fn capture<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> Asked<'a, Report> {
        answer(Report::of(RailOutcome::Succeeded))
    }

    /// Nothing can have gone wrong, so what was begun is done.
    fn look_up<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> Asked<'a, Report> {
        answer(Report::of(RailOutcome::Succeeded))
    }

    fn cancel<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> Asked<'a, Fenced> {
        answer(Fenced::Cancelled)
    }

    fn refund<'a>(&'a self, _: &'a Charge, _: Option<&'a str>) -> Asked<'a, Refunded> {
        answer(Refunded::Done { refund_id: None })
    }

    fn heard(&self, _: Message<'_>) -> Result<Hint, Problem> {
        Err(Problem::NotFound {
            what: "callback of this rail",
        })
    }
}
