//! A Stripe payment intent, and the report for the transaction that it should belong to.

use serde::Deserialize;
use serde_json::Value;

use super::account::StripeObject;
use super::api::{ListItem, StripeError};
use super::units;
use crate::outcome::RailOutcome;
use crate::rail::{Charge, RailReport, client};

/// A payment intent. It can succeed once, and never after it was cancelled.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PaymentIntent {
    #[serde(deserialize_with = "client::id")]
    id: String,
    pub(super) status: String,
    amount: u64,
    /// Less than the amount if it was captured in part.
    amount_received: Option<u64>,
    currency: String,
    #[serde(default)]
    created: i64,
    #[serde(default)]
    metadata: Value,
    last_payment_error: Option<StripeError>,
}

impl ListItem for PaymentIntent {
    fn id(&self) -> &str {
        &self.id
    }
}

impl StripeObject for PaymentIntent {
    const PATH: &'static str = "/v1/payment_intents";
    const NAME: &'static str = "payment_intent";

    fn reference(&self) -> Option<&str> {
        self.metadata.get("atp_ref").and_then(Value::as_str)
    }

    fn created_at(&self) -> i64 {
        self.created
    }

    fn report(&self, charge: &Charge) -> RailReport {
        let report = |outcome| RailReport::of(outcome).with_payment_id(&self.id);
        if let Some(difference) = self.differs(charge) {
            return report(RailOutcome::Different).with_failure("payment_mismatch", difference);
        }
        match self.status.as_str() {
            "succeeded" => report(RailOutcome::Succeeded),
            "requires_capture" => report(RailOutcome::Held),
            "processing" => report(RailOutcome::Processing),
            "requires_confirmation" => report(RailOutcome::Unconfirmed),
            // No payer is present to act, so it cannot continue.
            "requires_action" => report(RailOutcome::Failed).with_failure(
                "authentication_required",
                "the payment requires an action of the payer",
            ),
            "requires_payment_method" => self.failed("payment_failed", "the payment failed"),
            "canceled" => self.failed("canceled", "the payment was cancelled"),
            _ => report(RailOutcome::Unknown),
        }
    }
}

impl PaymentIntent {
    fn failed(&self, code: &str, message: &str) -> RailReport {
        let report = RailReport::of(RailOutcome::Failed).with_payment_id(&self.id);
        match &self.last_payment_error {
            Some(complaint) => RailReport {
                failure: Some(complaint.failure()),
                ..report
            },
            None => report.with_failure(code, message),
        }
    }

    /// Why this is not the payment of that transaction.
    fn differs(&self, charge: &Charge) -> Option<String> {
        let amount = match self.amount_received {
            Some(received) if self.status == "succeeded" => received,
            _ => self.amount,
        };
        difference(charge, amount, &self.currency, self.reference())
    }
}

/// Why a payment with this amount, currency and reference is not that of the transaction.
pub(in crate::rail) fn difference(
    charge: &Charge,
    amount: u64,
    currency: &str,
    reference: Option<&str>,
) -> Option<String> {
    let same_currency = currency.eq_ignore_ascii_case(charge.currency.as_str());
    if units::amount_of(charge) != Some(amount) || !same_currency {
        let currency = currency.to_uppercase();
        return Some(format!("the payment is over {amount} {currency}"));
    }
    let is_another = reference.is_some_and(|other| other != charge.reference.as_str());
    is_another.then(|| "the payment belongs to another transaction".to_owned())
}

/// The combined report of all payments under one reference, each with its creation time.
pub(in crate::rail) fn sum_up(reports: Vec<(i64, RailReport)>) -> RailReport {
    if reports
        .iter()
        .filter(|(_, report)| moves_money(report))
        .count()
        > 1
    {
        return RailReport::of(RailOutcome::Different).with_failure(
            "several_payments",
            "the rail shows more than one payment of this transaction",
        );
    }
    // Among open payments the first one counts, so that all drivers choose the same.
    let order = |(made, report): &(i64, RailReport)| {
        (rank(report.outcome), *made, report.payment_id.clone())
    };
    let first = reports.into_iter().min_by_key(order);
    first.map_or(RailReport::of(RailOutcome::NotFound), |(_, report)| report)
}

fn moves_money(report: &RailReport) -> bool {
    use RailOutcome::{Held, Processing, Succeeded};
    matches!(report.outcome, Succeeded | Held | Processing)
}

/// Lower ranks take precedence.
const fn rank(outcome: RailOutcome) -> u8 {
    match outcome {
        RailOutcome::Different => 0,
        RailOutcome::Succeeded => 1,
        RailOutcome::Processing => 2,
        RailOutcome::Held => 3,
        RailOutcome::Unknown | RailOutcome::Lost => 4,
        RailOutcome::Unconfirmed => 5,
        RailOutcome::Failed => 6,
        RailOutcome::NotFound => 7,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rail::tests::charge;

    fn payment(id: &str, status: &str, more: &Value) -> PaymentIntent {
        let mut object = json!({
            "id": id, "status": status, "amount": 1_500, "currency": "eur",
            "metadata": {"atp_ref": charge().reference.as_str()},
        });
        for (name, value) in more.as_object().unwrap() {
            object[name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn report(status: &str, more: &Value) -> RailReport {
        payment("pi_1", status, more).report(&charge())
    }

    #[test]
    fn every_status_has_its_meaning() {
        use RailOutcome::{Failed, Held, Processing, Succeeded, Unconfirmed, Unknown};
        for (status, outcome) in [
            ("succeeded", Succeeded),
            ("requires_capture", Held),
            ("processing", Processing),
            ("requires_confirmation", Unconfirmed),
            ("requires_payment_method", Failed),
            ("requires_action", Failed),
            ("canceled", Failed),
            ("something_new", Unknown),
            ("", Unknown),
        ] {
            let report = report(status, &json!({}));
            assert_eq!(report.outcome, outcome, "{status}");
            assert_eq!(report.payment_id.as_deref(), Some("pi_1"));
            assert_eq!(report.failure.is_some(), outcome == Failed, "{status}");
        }
    }

    #[test]
    fn what_a_rail_says_of_a_difference_is_cut_too() {
        let report = report("succeeded", &json!({"currency": "x".repeat(10_000)}));
        assert!(report.failure.unwrap().message.len() <= 500);
    }

    #[test]
    fn a_decline_keeps_the_words_of_the_rail() {
        let error = json!({"code": "card_declined", "message": "Your card was declined."});
        let report = report(
            "requires_payment_method",
            &json!({"last_payment_error": error}),
        );
        let failure = report.failure.unwrap();
        assert_eq!(failure.code, "card_declined");
        assert_eq!(failure.message, "Your card was declined.");
    }

    #[test]
    fn at_100_a_payment_of_another_amount_currency_or_reference_is_different() {
        for more in [
            json!({"amount": 1_501}),
            json!({"amount_received": 1_000}),
            json!({"currency": "usd"}),
            json!({"metadata": {"atp_ref": "atp_other"}}),
        ] {
            let report = report("succeeded", &more);
            assert_eq!(report.outcome, RailOutcome::Different, "{more}");
        }
        // Before anything is received, this is no difference; and metadata may have been removed by hand.
        let unpaid = report("requires_confirmation", &json!({"amount_received": 0}));
        assert_eq!(unpaid.outcome, RailOutcome::Unconfirmed);
        let bare = report(
            "succeeded",
            &json!({"metadata": {}, "amount_received": 1_500}),
        );
        assert_eq!(bare.outcome, RailOutcome::Succeeded);
    }

    #[test]
    fn of_several_payments_the_one_that_moved_money_counts() {
        let summed = |statuses: &[&str]| {
            let payments = statuses.iter().enumerate().map(|(index, status)| {
                payment(
                    &format!("pi_{index}"),
                    status,
                    &json!({"created": 9 - index}),
                )
            });
            let reports = payments.map(|payment| (payment.created, payment.report(&charge())));
            sum_up(reports.collect())
        };
        let reports = |statuses: &[&str]| {
            let report = summed(statuses);
            (report.outcome, report.payment_id.unwrap_or_default())
        };
        let open = "requires_confirmation";
        assert_eq!(summed(&[]), RailReport::of(RailOutcome::NotFound));
        assert_eq!(
            reports(&[open, "succeeded", "canceled"]),
            (RailOutcome::Succeeded, "pi_1".to_owned())
        );
        assert_eq!(
            reports(&["canceled", open, open]),
            (RailOutcome::Unconfirmed, "pi_2".to_owned())
        );
        assert_eq!(
            reports(&["canceled", "something_new", open]).0,
            RailOutcome::Unknown
        );
        for pair in [["succeeded", "succeeded"], ["succeeded", "processing"]] {
            assert_eq!(reports(&pair).0, RailOutcome::Different);
        }
    }
}
