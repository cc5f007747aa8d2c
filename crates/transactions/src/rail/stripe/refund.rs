//! Refunds: earlier refunds are counted first, because a rail may refund twice.

use consign_kernel::plant::{self, Plant};
use serde::Deserialize;
use serde_json::Value;

use super::api::{ListItem, StripeApi, StripeReply};
use super::{key, units};
use crate::rail::client::{self, failure};
use crate::rail::{Charge, RailFailure, RefundOutcome};

const REFUNDS: &str = "/v1/refunds";

#[derive(Debug, Deserialize)]
struct Refund {
    #[serde(deserialize_with = "client::id")]
    id: String,
    amount: u64,
    /// Old Stripe refunds have no status; they are done.
    status: Option<String>,
    failure_reason: Option<String>,
    #[serde(default)]
    metadata: Value,
}

impl ListItem for Refund {
    fn id(&self) -> &str {
        &self.id
    }
}

enum RefundStanding {
    Done,
    Pending,
    Failed,
    Unknown,
}

impl Refund {
    fn standing(&self) -> RefundStanding {
        match self.status.as_deref() {
            Some("succeeded") | None => RefundStanding::Done,
            Some("pending" | "requires_action") => RefundStanding::Pending,
            Some("failed" | "canceled") => RefundStanding::Failed,
            Some(_) => RefundStanding::Unknown,
        }
    }

    fn is_ours(&self, charge: &Charge) -> bool {
        self.metadata.get("atp_ref").and_then(Value::as_str) == Some(&*charge.refund_reference())
    }

    fn failure(&self) -> RailFailure {
        let reason = self.failure_reason.as_deref().unwrap_or("unknown");
        failure("refund_failed", &format!("the refund failed: {reason}"))
    }

    fn outcome(self) -> RefundOutcome {
        match self.standing() {
            RefundStanding::Done => RefundOutcome::done(Some(self.id)),
            RefundStanding::Pending => RefundOutcome::Pending,
            RefundStanding::Failed => RefundOutcome::Refused(self.failure()),
            RefundStanding::Unknown => RefundOutcome::Unknown,
        }
    }
}

/// Refunds the rest of `paid`, which is the id of a payment or charge, depending on `what`.
pub(in crate::rail) async fn pay_back(
    api: &StripeApi,
    charge: &Charge,
    what: &'static str,
    paid: &str,
) -> RefundOutcome {
    let filter = vec![(what, paid.to_owned())];
    let list = || api.list::<Refund>(REFUNDS, &filter, |_| true);
    let Some(before) = list().await else {
        return RefundOutcome::Unknown;
    };
    let left = match sum_up(before, charge) {
        RefundSum::Left(left) => left,
        RefundSum::Decided(_) if plant::on(Plant::UnlistedRefund) => whole(charge),
        RefundSum::Decided(outcome) => return outcome,
    };
    let reference = charge.refund_reference();
    let form = vec![
        (what, paid.to_owned()),
        ("amount", left.to_string()),
        ("metadata[atp_ref]", reference),
        ("metadata[intent_id]", charge.intent_id.clone()),
    ];
    // Stripe repeats its answer to a key, so a refund that was refused is requested with another key.
    let key = match charge.refunds_refused {
        0 => key(charge, "refund"),
        refused => key(charge, &format!("refund_{}", refused + 1)),
    };
    let refusal = match api.post::<Refund>(REFUNDS, &form, Some(&key)).await {
        StripeReply::Done(refund) => return refund.outcome(),
        StripeReply::Refused(failure) => Some(failure),
        StripeReply::Missing(_) | StripeReply::Unclear => None,
    };
    // A concurrent refund may have succeeded, or the answer was lost.
    match (list().await.map(|all| sum_up(all, charge)), refusal) {
        (Some(RefundSum::Decided(outcome)), _) => outcome,
        (Some(RefundSum::Left(_)), Some(failure)) => RefundOutcome::Refused(failure),
        _ => RefundOutcome::Unknown,
    }
}

/// The paid amount in Stripe's units.
fn whole(charge: &Charge) -> u64 {
    units::amount_of(charge).unwrap_or(charge.amount.get())
}

enum RefundSum {
    /// This much remains to be refunded.
    Left(u64),
    Decided(RefundOutcome),
}

/// The combined result of all refunds, including manual ones.
fn sum_up(refunds: Vec<Refund>, charge: &Charge) -> RefundSum {
    let amount = whole(charge);
    let (mut done, mut under_way) = (0_u64, 0_u64);
    let mut last: Option<String> = None;
    let mut failed = None;
    for refund in refunds {
        let ours = refund.is_ours(charge);
        match refund.standing() {
            RefundStanding::Done => {
                done = done.saturating_add(refund.amount);
                if ours || last.is_none() {
                    last = Some(refund.id);
                }
            }
            // A refund that may have happened is not repeated.
            RefundStanding::Pending | RefundStanding::Unknown => {
                under_way = under_way.saturating_add(refund.amount);
            }
            RefundStanding::Failed if ours => failed = Some(refund.failure()),
            RefundStanding::Failed => {}
        }
    }
    match failed {
        _ if done >= amount => RefundSum::Decided(RefundOutcome::done(last)),
        _ if done.saturating_add(under_way) >= amount => RefundSum::Decided(RefundOutcome::Pending),
        Some(failure) => RefundSum::Decided(RefundOutcome::Refused(failure)),
        None => RefundSum::Left(amount - done - under_way),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rail::tests::charge;

    fn sum(refunds: &[(u64, &str, bool)]) -> String {
        let reference = charge().refund_reference();
        let refunds = refunds.iter().enumerate().map(|(index, (amount, status, ours))| {
            let metadata = if *ours { json!({"atp_ref": reference}) } else { json!({}) };
            let refund = json!({
                "id": format!("re_{index}"), "amount": amount, "status": status, "metadata": metadata,
            });
            serde_json::from_value(refund).unwrap()
        });
        match sum_up(refunds.collect(), &charge()) {
            RefundSum::Left(left) => format!("{left} left"),
            RefundSum::Decided(RefundOutcome::Done { refund_id }) => {
                format!("done by {}", refund_id.unwrap())
            }
            RefundSum::Decided(outcome) => format!("{outcome:?}"),
        }
    }

    #[test]
    fn what_was_paid_back_before_is_not_paid_back_again() {
        assert_eq!(sum(&[]), "1500 left");
        assert_eq!(sum(&[(500, "succeeded", false)]), "1000 left");
        assert_eq!(sum(&[(1_500, "succeeded", false)]), "done by re_0");
        assert_eq!(
            sum(&[(500, "succeeded", false), (1_000, "succeeded", true)]),
            "done by re_1"
        );
        assert_eq!(sum(&[(1_500, "pending", true)]), "Pending");
        assert_eq!(sum(&[(1_500, "something_new", true)]), "Pending");
        assert_eq!(sum(&[(1_500, "canceled", false)]), "1500 left");
        assert!(sum(&[(1_500, "failed", true)]).starts_with("Refused"));
        assert_eq!(
            sum(&[(1_500, "failed", true), (1_500, "succeeded", false)]),
            "done by re_1"
        );
    }
}
