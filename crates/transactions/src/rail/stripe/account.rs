//! An account at Stripe, whatever its payments are called there: how they are made, found, listed and paid back.

use consign_client::percent_encode;
use serde::de::DeserializeOwned;

use super::api::{FormField, ListItem, StripeApi, StripeReply};
use super::payment::sum_up;
use super::refund::pay_back;
use super::{Options, key, units, unknown_if_still};
use crate::callback::{StripeEvent, StripeSecrets};
use crate::outcome::RailOutcome;
use crate::problem::Problem;
use crate::rail::client::RailSetupError;
use crate::rail::{CallbackHint, CallbackMessage, Charge, RailReport, RefundOutcome};

const SIGNATURE: &str = "stripe-signature";

/// A payment as the account shows it.
pub(in crate::rail) trait StripeObject: ListItem + DeserializeOwned {
    /// Where they are made and listed.
    const PATH: &'static str;
    /// How a refund calls the payment that it pays back.
    const NAME: &'static str;

    /// The reference that it was made under, if it is one of ours.
    fn reference(&self) -> Option<&str>;
    /// In seconds.
    fn created_at(&self) -> i64;
    /// What it means for the transaction that it should belong to.
    fn report(&self, charge: &Charge) -> RailReport;
}

#[derive(Debug)]
pub(in crate::rail) struct StripeAccount {
    pub(in crate::rail) api: StripeApi,
    webhook_secrets: StripeSecrets,
}

impl StripeAccount {
    pub(in crate::rail) fn new(options: Options) -> Result<Self, RailSetupError> {
        Ok(Self {
            api: StripeApi::new(&options.base, &options.secret, options.timeout)?,
            webhook_secrets: options.webhook_secrets,
        })
    }

    /// Makes a payment of what all of them have, and of what `own` makes of the payment method. Nothing moves by that.
    pub(in crate::rail) async fn make<P: StripeObject>(
        &self,
        charge: &Charge,
        endpoint: &str,
        own: impl FnOnce(String) -> Vec<FormField<'static>>,
    ) -> RailReport {
        let Some(method) = charge.payment_method.clone() else {
            return RailReport::of(RailOutcome::Failed).with_failure(
                "payment_method_required",
                "the intent names no payment method in rail.payment_method",
            );
        };
        let amount = match units::amount(charge.amount, charge.currency) {
            Ok(amount) => amount,
            Err(why) => {
                return RailReport::of(RailOutcome::Failed).with_failure("invalid_amount", why);
            }
        };
        let mut form = vec![
            ("amount", amount.to_string()),
            ("currency", charge.currency.as_str().to_lowercase()),
            ("metadata[atp_ref]", charge.reference.as_str().to_owned()),
            ("metadata[intent_id]", charge.intent_id.clone()),
        ];
        form.extend(own(method));
        let key = key(charge, endpoint);
        match self.api.post::<P>(P::PATH, &form, Some(&key)).await {
            StripeReply::Done(payment) => payment.report(charge),
            StripeReply::Refused(failure) | StripeReply::Missing(failure) => RailReport {
                failure: Some(failure),
                ..RailReport::of(RailOutcome::Failed)
            },
            // It may be there all the same, and a key that once failed fails for a day.
            StripeReply::Unclear => {
                unknown_if_still(self.find::<P>(charge).await, RailOutcome::NotFound)
            }
        }
    }

    pub(in crate::rail) async fn look<P: StripeObject>(
        &self,
        charge: &Charge,
        id: Option<&str>,
    ) -> RailReport {
        let Some(id) = id else {
            return self.find::<P>(charge).await;
        };
        match self.api.get::<P>(&path_of::<P>(id)).await {
            StripeReply::Done(payment) => payment.report(charge),
            StripeReply::Missing(_) => self.find::<P>(charge).await,
            StripeReply::Refused(_) | StripeReply::Unclear => {
                RailReport::of(RailOutcome::Unknown).with_payment_id(id)
            }
        }
    }

    /// By the reference alone.
    async fn find<P: StripeObject>(&self, charge: &Charge) -> RailReport {
        match self.under_reference::<P>(charge).await {
            Some(payments) => {
                let told = payments.iter().map(|p| (p.created_at(), p.report(charge)));
                sum_up(told.collect())
            }
            None => RailReport::of(RailOutcome::Unknown),
        }
    }

    async fn under_reference<P: StripeObject>(&self, charge: &Charge) -> Option<Vec<P>> {
        let ours = |payment: &P| payment.reference() == Some(charge.reference.as_str());
        self.api.list(P::PATH, &[], ours).await
    }

    /// All that a fence must be around: what lies under the reference, and the one that is named. None if it cannot be told.
    pub(in crate::rail) async fn ids_to_fence<P: StripeObject>(
        &self,
        charge: &Charge,
        id: Option<&str>,
    ) -> Option<Vec<String>> {
        let payments = self.under_reference::<P>(charge).await?;
        let listed = payments.iter().map(|payment| payment.id().to_owned());
        let mut ids: Vec<String> = listed.collect();
        if let Some(id) = id
            && !ids.iter().any(|listed| listed == id)
        {
            ids.push(id.to_owned());
        }
        Some(ids)
    }

    pub(in crate::rail) async fn refund_payment<P: StripeObject>(
        &self,
        charge: &Charge,
        id: Option<&str>,
    ) -> RefundOutcome {
        let found = match id {
            Some(id) => Some(id.to_owned()),
            None => self.find::<P>(charge).await.payment_id,
        };
        match found {
            Some(id) => pay_back(&self.api, charge, P::NAME, &id).await,
            None => RefundOutcome::Unknown,
        }
    }

    pub(in crate::rail) fn parse_callback(
        &self,
        message: CallbackMessage<'_>,
    ) -> Result<CallbackHint, Problem> {
        let signature = message.header(SIGNATURE).ok_or(Problem::CallbackRefused {
            reason: "is missing; the rail sends it as Stripe-Signature",
        })?;
        self.webhook_secrets
            .check(signature, message.body, message.now)?;
        let event = StripeEvent::read(message.body)?;
        CallbackHint::new(event.id, event.payment_id)
    }
}

/// Where one of them is.
pub(in crate::rail) fn path_of<P: StripeObject>(id: &str) -> String {
    format!("{}/{}", P::PATH, percent_encode(id.as_bytes()))
}
