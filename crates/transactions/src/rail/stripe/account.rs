//! An account at Stripe, whatever its payments are called there: how they are made, found, listed and paid back.

use consign_client::percent_encode;
use serde::de::DeserializeOwned;

use super::api::{Api, Listed, Pair, Reply};
use super::payment::sum_up;
use super::refund::pay_back;
use super::{Options, key, units, unless};
use crate::callback::{Event, Secrets};
use crate::outcome::RailOutcome;
use crate::problem::Problem;
use crate::rail::wire::Setup;
use crate::rail::{Charge, Hint, Message, Refunded, Report};

const SIGNATURE: &str = "stripe-signature";

/// A payment as the account shows it.
pub(in crate::rail) trait Shown: Listed + DeserializeOwned {
    /// Where they are made and listed.
    const PATH: &'static str;
    /// How a refund calls the payment that it pays back.
    const NAME: &'static str;

    /// The reference that it was made under, if it is one of ours.
    fn reference(&self) -> Option<&str>;
    /// In seconds.
    fn made_at(&self) -> i64;
    /// What it means for the transaction that it should belong to.
    fn report(&self, charge: &Charge) -> Report;
}

#[derive(Debug)]
pub(in crate::rail) struct Account {
    pub(in crate::rail) api: Api,
    webhook_secrets: Secrets,
}

impl Account {
    pub(in crate::rail) fn new(options: Options) -> Result<Self, Setup> {
        Ok(Self {
            api: Api::new(&options.base, &options.secret, options.timeout)?,
            webhook_secrets: options.webhook_secrets,
        })
    }

    /// Makes a payment of what all of them have, and of what `own` makes of the payment method. Nothing moves by that.
    pub(in crate::rail) async fn make<P: Shown>(
        &self,
        charge: &Charge,
        endpoint: &str,
        own: impl FnOnce(String) -> Vec<Pair<'static>>,
    ) -> Report {
        let Some(method) = charge.payment_method.clone() else {
            return Report::of(RailOutcome::Failed).because(
                "payment_method_required",
                "the intent names no payment method in rail.payment_method",
            );
        };
        let amount = match units::amount(charge.amount, charge.currency) {
            Ok(amount) => amount,
            Err(why) => return Report::of(RailOutcome::Failed).because("invalid_amount", why),
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
            Reply::Done(payment) => payment.report(charge),
            Reply::Refused(failure) | Reply::Missing(failure) => Report {
                failure: Some(failure),
                ..Report::of(RailOutcome::Failed)
            },
            // It may be there all the same, and a key that once failed fails for a day.
            Reply::Unclear => unless(self.find::<P>(charge).await, RailOutcome::NotFound),
        }
    }

    pub(in crate::rail) async fn look<P: Shown>(
        &self,
        charge: &Charge,
        id: Option<&str>,
    ) -> Report {
        let Some(id) = id else {
            return self.find::<P>(charge).await;
        };
        match self.api.get::<P>(&path_of::<P>(id)).await {
            Reply::Done(payment) => payment.report(charge),
            Reply::Missing(_) => self.find::<P>(charge).await,
            Reply::Refused(_) | Reply::Unclear => Report::of(RailOutcome::Unknown).named(id),
        }
    }

    /// By the reference alone.
    async fn find<P: Shown>(&self, charge: &Charge) -> Report {
        match self.under_reference::<P>(charge).await {
            Some(payments) => {
                let told = payments.iter().map(|p| (p.made_at(), p.report(charge)));
                sum_up(told.collect())
            }
            None => Report::of(RailOutcome::Unknown),
        }
    }

    async fn under_reference<P: Shown>(&self, charge: &Charge) -> Option<Vec<P>> {
        let ours = |payment: &P| payment.reference() == Some(charge.reference.as_str());
        self.api.list(P::PATH, &[], ours).await
    }

    /// All that a fence must be around: what lies under the reference, and the one that is named. None if it cannot be told.
    pub(in crate::rail) async fn to_fence<P: Shown>(
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

    pub(in crate::rail) async fn give_back<P: Shown>(
        &self,
        charge: &Charge,
        id: Option<&str>,
    ) -> Refunded {
        let found = match id {
            Some(id) => Some(id.to_owned()),
            None => self.find::<P>(charge).await.payment_id,
        };
        match found {
            Some(id) => pay_back(&self.api, charge, P::NAME, &id).await,
            None => Refunded::Unknown,
        }
    }

    pub(in crate::rail) fn heard(&self, message: Message<'_>) -> Result<Hint, Problem> {
        let signature = message.header(SIGNATURE).ok_or(Problem::CallbackRefused {
            reason: "is missing; the rail sends it as Stripe-Signature",
        })?;
        self.webhook_secrets
            .check(signature, message.body, message.now)?;
        let event = Event::read(message.body)?;
        Hint::new(event.id, event.payment_id)
    }
}

/// Where one of them is.
pub(in crate::rail) fn path_of<P: Shown>(id: &str) -> String {
    format!("{}/{}", P::PATH, percent_encode(id.as_bytes()))
}
