//! Stripe's older Charges API, as `stripe-charges`: for accounts and mock servers without payment intents.
//!
//! A payment is prepared by placing a hold, confirmed by capturing it, and fenced off by releasing it. The invariants are
//! those of [`super::stripe`]: only a payment with a stored id is confirmed, and correctness does not depend on idempotency
//! keys. The account is shared with that rail; this file has the differences. No setting selects this rail, and only
//! the feature `stripe-charges` compiles it: it proves the adapter against a mock server that honours idempotency keys, which
//! exists only for charges.

use serde::Deserialize;
use serde_json::Value;

use super::client::{self, RailSetupError, failure};
use super::stripe::{
    ListItem, Options, StripeAccount, StripeObject, StripeReply, check_amount, difference, key,
    path_of, unknown_if_still,
};
use super::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFuture, RailReport, RefundOutcome,
};
use crate::intent::Capture;
use crate::money::{Cents, Currency};
use crate::outcome::RailOutcome;
use crate::problem::Problem;

const REFUNDS: &str = "/v1/refunds";

#[derive(Debug)]
pub struct ChargesRail {
    account: StripeAccount,
}

/// A charge as Stripe shows it; a hold until it is captured.
#[derive(Debug, Deserialize)]
struct ChargeObject {
    #[serde(deserialize_with = "client::id")]
    id: String,
    status: String,
    amount: u64,
    currency: String,
    captured: bool,
    #[serde(default)]
    refunded: bool,
    #[serde(default)]
    created: i64,
    #[serde(default)]
    metadata: Value,
    failure_code: Option<String>,
    failure_message: Option<String>,
}

impl ListItem for ChargeObject {
    fn id(&self) -> &str {
        &self.id
    }
}

/// The answer to a release; its content is not used.
#[derive(Deserialize)]
struct Released {}

impl StripeObject for ChargeObject {
    const PATH: &'static str = "/v1/charges";
    const NAME: &'static str = "charge";

    fn reference(&self) -> Option<&str> {
        self.metadata.get("atp_ref").and_then(Value::as_str)
    }

    fn created_at(&self) -> i64 {
        self.created
    }

    fn report(&self, charge: &Charge) -> RailReport {
        let report = |outcome| RailReport::of(outcome).with_payment_id(&self.id);
        let reference = self.reference();
        if let Some(why) = difference(charge, self.amount, &self.currency, reference) {
            return report(RailOutcome::Different).with_failure("payment_mismatch", why);
        }
        match (self.status.as_str(), self.captured, self.refunded) {
            ("succeeded", true, _) => report(RailOutcome::Succeeded),
            ("succeeded", false, true) => {
                report(RailOutcome::Failed).with_failure("released", "the hold was released")
            }
            ("succeeded", false, false) => report(match charge.capture {
                Capture::Automatic => RailOutcome::Unconfirmed,
                Capture::Manual => RailOutcome::Held,
            }),
            ("pending", ..) => report(RailOutcome::Processing),
            ("failed", ..) => RailReport {
                failure: Some(failure(
                    self.failure_code.as_deref().unwrap_or("payment_failed"),
                    self.failure_message
                        .as_deref()
                        .unwrap_or("the charge failed"),
                )),
                ..report(RailOutcome::Failed)
            },
            _ => report(RailOutcome::Unknown),
        }
    }
}

impl ChargeObject {
    fn fenced(&self) -> Fenced {
        match (self.status.as_str(), self.captured, self.refunded) {
            ("failed", ..) | ("succeeded", false, true) => Fenced::Cancelled,
            ("succeeded", true, _) | ("pending", ..) => Fenced::TooLate,
            _ => Fenced::Unknown,
        }
    }
}

impl ChargesRail {
    pub fn new(options: Options) -> Result<Self, RailSetupError> {
        Ok(Self {
            account: StripeAccount::new(options)?,
        })
    }

    async fn make(&self, charge: &Charge) -> RailReport {
        let own = |source| vec![("source", source), ("capture", "false".to_owned())];
        self.account.make::<ChargeObject>(charge, "ch", own).await
    }

    /// Captures the hold and reports the outcome.
    async fn take(&self, charge: &Charge, id: &str) -> RailReport {
        let path = format!("{}/capture", path_of::<ChargeObject>(id));
        let key = key(charge, "capture");
        let report = match self
            .account
            .api
            .post::<ChargeObject>(&path, &[], Some(&key))
            .await
        {
            StripeReply::Done(hold) => hold.report(charge),
            StripeReply::Refused(_) | StripeReply::Missing(_) | StripeReply::Unclear => {
                self.account.look::<ChargeObject>(charge, Some(id)).await
            }
        };
        unknown_if_still(
            unknown_if_still(report, RailOutcome::Unconfirmed),
            RailOutcome::Held,
        )
    }

    async fn fence(&self, charge: &Charge, id: Option<&str>) -> Fenced {
        let Some(ids) = self.account.ids_to_fence::<ChargeObject>(charge, id).await else {
            return Fenced::Unknown;
        };
        let mut fenced = Fenced::Cancelled;
        for id in &ids {
            fenced = fenced.and(self.fence_one(id).await);
        }
        fenced
    }

    async fn fence_one(&self, id: &str) -> Fenced {
        let path = path_of::<ChargeObject>(id);
        let look = || self.account.api.get::<ChargeObject>(&path);
        match look().await {
            // Only a hold is released: a captured charge would be refunded instead.
            StripeReply::Done(hold) if hold.fenced() == Fenced::Unknown && !hold.captured => {}
            StripeReply::Done(hold) => return hold.fenced(),
            StripeReply::Missing(_) => return Fenced::Cancelled,
            StripeReply::Refused(_) | StripeReply::Unclear => return Fenced::Unknown,
        }
        let form = vec![("charge", id.to_owned())];
        // The answer is not sufficient: the hold itself must show that it is released.
        let _: StripeReply<Released> = self.account.api.post(REFUNDS, &form, None).await;
        match look().await {
            StripeReply::Done(hold) => hold.fenced(),
            StripeReply::Refused(_) | StripeReply::Missing(_) | StripeReply::Unclear => {
                Fenced::Unknown
            }
        }
    }
}

impl Rail for ChargesRail {
    fn name(&self) -> &'static str {
        "stripe-charges"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        Box::pin(self.account.api.within(self.make(charge), late))
    }

    /// A hold that the site captures itself is left as it is.
    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        match charge.capture {
            Capture::Automatic => self.capture(charge, id),
            Capture::Manual => self.look_up(charge, id),
        }
    }

    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        match id {
            Some(id) => Box::pin(
                self.account
                    .api
                    .within(self.take(charge, id), late.with_payment_id(id)),
            ),
            // Its id must be known first.
            None => self.look_up(charge, None),
        }
    }

    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        let late = RailReport::of(RailOutcome::Unknown);
        Box::pin(
            self.account
                .api
                .within(self.account.look::<ChargeObject>(charge, id), late),
        )
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, id: Option<&'a str>) -> RailFuture<'a, Fenced> {
        Box::pin(
            self.account
                .api
                .within(self.fence(charge, id), Fenced::Unknown),
        )
    }

    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome> {
        let refunding = self.account.refund_payment::<ChargeObject>(charge, id);
        Box::pin(self.account.api.within(refunding, RefundOutcome::Unknown))
    }

    fn parse_callback(&self, message: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        let hint = self.account.parse_callback(message)?;
        let about = hint.about.or_else(|| charge_of_event(message.body));
        CallbackHint::new(hint.event_id, about)
    }

    fn check_amount(&self, amount: Cents, currency: Currency) -> Result<(), Problem> {
        check_amount(amount, currency)
    }
}

/// The charge of an event without a payment intent.
fn charge_of_event(body: &[u8]) -> Option<String> {
    let event: Value = serde_json::from_slice(body).ok()?;
    let object = &event["data"]["object"];
    let id = match event["type"].as_str()?.split_once('.')?.0 {
        "charge" => &object["id"],
        "refund" => &object["charge"],
        _ => return None,
    };
    id.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_the_charge() {
        let charge_of = |body: &str| charge_of_event(body.as_bytes());
        let captured = r#"{"type":"charge.captured","data":{"object":{"id":"ch_1"}}}"#;
        let refunded =
            r#"{"type":"refund.updated","data":{"object":{"id":"re_1","charge":"ch_1"}}}"#;
        for event in [captured, refunded] {
            assert_eq!(charge_of(event).as_deref(), Some("ch_1"));
        }
        for event in [
            "",
            "[]",
            r#"{"type":"charge.captured"}"#,
            r#"{"type":"payout.paid"}"#,
        ] {
            assert_eq!(charge_of(event), None, "{event}");
        }
    }
}
