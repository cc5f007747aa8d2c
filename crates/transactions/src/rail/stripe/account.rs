//! A Stripe account: creates, finds, lists and refunds payments of either API.

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

/// A payment object of the account.
pub(in crate::rail) trait StripeObject: ListItem + DeserializeOwned {
    /// The path to create and list them.
    const PATH: &'static str;
    /// The name of the payment's id in a refund.
    const NAME: &'static str;

    /// The reference that it was created under, if this site created it.
    fn reference(&self) -> Option<&str>;
    /// In seconds.
    fn created_at(&self) -> i64;
    /// The report for the transaction that it should belong to.
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

    /// Creates a payment with the common fields and the fields that `own` derives from the payment method. No money moves.
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
            // It may exist all the same, and a key that failed once fails for a day.
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

    /// Looks up by the reference alone.
    async fn find<P: StripeObject>(&self, charge: &Charge) -> RailReport {
        match self.under_reference::<P>(charge).await {
            Some(payments) => {
                let reports = payments.iter().map(|p| (p.created_at(), p.report(charge)));
                sum_up(reports.collect())
            }
            None => RailReport::of(RailOutcome::Unknown),
        }
    }

    async fn under_reference<P: StripeObject>(&self, charge: &Charge) -> Option<Vec<P>> {
        let ours = |payment: &P| payment.reference() == Some(charge.reference.as_str());
        self.api.list(P::PATH, &[], ours).await
    }

    /// All payments that a fence must cancel: those under the reference, and the given one. None if the list is not
    /// available.
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

/// The path of one object.
pub(in crate::rail) fn path_of<P: StripeObject>(id: &str) -> String {
    format!("{}/{}", P::PATH, percent_encode(id.as_bytes()))
}
