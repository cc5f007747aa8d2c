//! A rail with its own records, which the tests count. It can lose answers, be unreachable, decline, and delay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consign_transactions::outcome::RailOutcome;
use consign_transactions::problem::Problem;
use consign_transactions::rail::{
    CallbackHint, CallbackMessage, Charge, Fenced, Rail, RailFailure, RailFuture, RailReport,
    RefundOutcome,
};

/// The behaviour of the bank in its next calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// Unreachable.
    Away,
    /// Moves the money and loses the answer.
    Mute,
    Declines,
    /// Acknowledges, and settles later.
    Slow,
    /// Places a hold, which must be captured.
    Holds,
    /// Charges another amount.
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payment {
    Prepared,
    Processing,
    Held,
    Paid,
    Failed,
    Cancelled,
}

#[derive(Debug, Default)]
struct Books {
    mood: Mood,
    /// By id; the reference of each.
    payments: BTreeMap<String, (String, Payment)>,
    /// The payment of each.
    refunds: Vec<String>,
    calls: u32,
    refund_refused: bool,
    /// A payment in processing can no longer be cancelled.
    is_firm: bool,
    /// The reference of a payment that arrives at the very moment of its cancellation.
    late: Option<String>,
    /// Calls for this intent do not arrive.
    held_back: Option<(&'static str, String)>,
    /// How many calls were delayed, and how many of them were released, in order of arrival.
    waited: u32,
    let_go: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bank(Arc<Mutex<Books>>);

impl Bank {
    pub(crate) fn be(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    pub(crate) fn refuse_refunds(&self) {
        self.0.lock().unwrap().refund_refused = true;
    }

    pub(crate) fn be_firm(&self) {
        self.0.lock().unwrap().is_firm = true;
    }

    /// The number of payments that really happened.
    pub(crate) fn charges(&self) -> usize {
        let books = self.0.lock().unwrap();
        let paid = |(_, payment): &&(String, Payment)| *payment == Payment::Paid;
        books.payments.values().filter(paid).count()
    }

    pub(crate) fn refunds(&self) -> usize {
        self.0.lock().unwrap().refunds.len()
    }

    pub(crate) fn calls(&self) -> u32 {
        self.0.lock().unwrap().calls
    }

    /// The bank's own action: payments in processing end like this.
    pub(crate) fn end_all(&self, end: Payment) {
        for (_, payment) in self.0.lock().unwrap().payments.values_mut() {
            if *payment == Payment::Processing {
                *payment = end;
            }
        }
    }

    /// Like a bank restored from an old backup, or another bank at the same address.
    pub(crate) fn forget_payments(&self) {
        self.0.lock().unwrap().payments.clear();
    }

    /// A payment whose caller got no answer.
    pub(crate) fn prepare_unnoticed(&self, reference: &str) {
        let mut books = self.0.lock().unwrap();
        let id = format!("pay_{}", books.payments.len() + 1);
        books
            .payments
            .insert(id, (reference.to_owned(), Payment::Prepared));
    }

    pub(crate) fn prepare_when_cancelled(&self, reference: &str) {
        self.0.lock().unwrap().late = Some(reference.to_owned());
    }

    pub(crate) fn payments(&self) -> Vec<Payment> {
        let books = self.0.lock().unwrap();
        books
            .payments
            .values()
            .map(|(_, payment)| *payment)
            .collect()
    }

    /// From now on calls of this verb do not arrive if they are for this intent.
    pub(crate) fn hold_back(&self, verb: &'static str, intent_id: &str) {
        self.0.lock().unwrap().held_back = Some((verb, intent_id.to_owned()));
    }

    /// Calls arrive again; delayed ones stay delayed.
    pub(crate) fn hold_back_no_more(&self) {
        self.0.lock().unwrap().held_back = None;
    }

    /// Releases all delayed calls.
    pub(crate) fn let_go(&self) {
        let mut books = self.0.lock().unwrap();
        books.held_back = None;
        books.let_go = books.waited;
    }

    /// Releases the call that has waited longest.
    pub(crate) fn let_go_one(&self) {
        self.0.lock().unwrap().let_go += 1;
    }

    pub(crate) async fn wait_for_held_back(&self, calls: u32) {
        let until = Instant::now() + Duration::from_secs(20);
        let waiting = || {
            let books = self.0.lock().unwrap();
            books.waited - books.let_go
        };
        while waiting() < calls {
            assert!(Instant::now() < until, "fewer than {calls} calls");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn arrive(&self, verb: &'static str, charge: &Charge) {
        tokio::task::yield_now().await;
        let ticket = {
            let mut books = self.0.lock().unwrap();
            if books.held_back != Some((verb, charge.intent_id.clone())) {
                return;
            }
            books.waited += 1;
            books.waited
        };
        while self.0.lock().unwrap().let_go < ticket {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn with<T>(&self, lost: T, act: impl FnOnce(&mut Books) -> T) -> T {
        let mut books = self.0.lock().unwrap();
        books.calls += 1;
        match books.mood {
            Mood::Away => lost,
            Mood::Mute => {
                act(&mut books);
                lost
            }
            Mood::Well | Mood::Declines | Mood::Slow | Mood::Holds | Mood::Wrong => act(&mut books),
        }
    }

    fn find(books: &Books, charge: &Charge, id: Option<&str>) -> Option<String> {
        let own = |(_, (reference, _)): &(&String, &(String, Payment))| {
            reference == charge.reference.as_str()
        };
        match id {
            Some(id) => books.payments.contains_key(id).then(|| id.to_owned()),
            None => books.payments.iter().find(own).map(|(id, _)| id.clone()),
        }
    }

    fn report(books: &Books, charge: &Charge, id: Option<&str>) -> RailReport {
        let Some(id) = Self::find(books, charge, id) else {
            return RailReport::of(RailOutcome::NotFound);
        };
        let outcome = match books.payments[&id].1 {
            _ if books.mood == Mood::Wrong => RailOutcome::Different,
            Payment::Prepared => RailOutcome::Unconfirmed,
            Payment::Processing => RailOutcome::Processing,
            Payment::Held => RailOutcome::Held,
            Payment::Paid => RailOutcome::Succeeded,
            Payment::Failed | Payment::Cancelled => RailOutcome::Failed,
        };
        let report = RailReport::of(outcome).with_payment_id(id);
        if outcome == RailOutcome::Failed {
            return report.with_failure("card_declined", "Your card was declined.");
        }
        report
    }
}

impl Rail for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn prepare<'a>(&'a self, charge: &'a Charge) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            self.arrive("prepare", charge).await;
            let mute = self.0.lock().unwrap().mood == Mood::Mute;
            if mute {
                self.be(Mood::Well);
            }
            let report = self.with(RailReport::of(RailOutcome::Unknown), |books| {
                // A second call creates a second payment, like a rail that ignores idempotency keys.
                let id = format!("pay_{}", books.payments.len() + 1);
                let reference = charge.reference.as_str().to_owned();
                books
                    .payments
                    .insert(id.clone(), (reference, Payment::Prepared));
                RailReport::of(RailOutcome::Unconfirmed).with_payment_id(id)
            });
            if mute {
                self.be(Mood::Mute);
            }
            report
        })
    }

    fn confirm<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            self.arrive("confirm", charge).await;
            self.with(RailReport::of(RailOutcome::Unknown), |books| {
                let found = Self::find(books, charge, id);
                let after = match books.mood {
                    Mood::Declines => Payment::Failed,
                    Mood::Slow => Payment::Processing,
                    Mood::Holds => Payment::Held,
                    Mood::Well | Mood::Away | Mood::Mute | Mood::Wrong => Payment::Paid,
                };
                if let Some((_, payment)) = found.and_then(|id| books.payments.get_mut(&id))
                    && *payment == Payment::Prepared
                {
                    *payment = after;
                }
                Self::report(books, charge, id)
            })
        })
    }

    fn capture<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            self.arrive("capture", charge).await;
            self.with(RailReport::of(RailOutcome::Unknown), |books| {
                let found = Self::find(books, charge, id);
                if let Some((_, payment)) = found.and_then(|id| books.payments.get_mut(&id))
                    && *payment == Payment::Held
                {
                    *payment = Payment::Paid;
                }
                Self::report(books, charge, id)
            })
        })
    }

    fn look_up<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RailReport> {
        Box::pin(async move {
            self.arrive("look_up", charge).await;
            self.with(RailReport::of(RailOutcome::Unknown), |books| {
                Self::report(books, charge, id)
            })
        })
    }

    fn cancel<'a>(&'a self, charge: &'a Charge, _: Option<&'a str>) -> RailFuture<'a, Fenced> {
        Box::pin(async move {
            self.arrive("cancel", charge).await;
            self.with(Fenced::Unknown, |books| {
                let mut fenced = Fenced::Cancelled;
                let is_firm = books.is_firm;
                if let Some(reference) = books.late.take() {
                    let late = (reference, Payment::Prepared);
                    books.payments.insert("late".to_owned(), late);
                }
                for (reference, payment) in books.payments.values_mut() {
                    if reference == charge.reference.as_str() {
                        match payment {
                            Payment::Paid => fenced = Fenced::TooLate,
                            Payment::Failed | Payment::Cancelled => {}
                            Payment::Processing if is_firm => fenced = Fenced::TooLate,
                            Payment::Prepared | Payment::Processing | Payment::Held => {
                                *payment = Payment::Cancelled;
                            }
                        }
                    }
                }
                fenced
            })
        })
    }

    fn refund<'a>(
        &'a self,
        charge: &'a Charge,
        id: Option<&'a str>,
    ) -> RailFuture<'a, RefundOutcome> {
        Box::pin(async move {
            // Earlier refunds are looked up first, as with any rail that ignores idempotency keys.
            let before = {
                let books = self.0.lock().unwrap();
                let id = Self::find(&books, charge, id).unwrap_or_default();
                books.refunds.iter().position(|one| *one == id)
            };
            self.arrive("refund", charge).await;
            self.with(RefundOutcome::Unknown, |books| {
                if books.refund_refused {
                    return RefundOutcome::Refused(RailFailure {
                        code: "charge_disputed".to_owned(),
                        message: "The charge is disputed.".to_owned(),
                    });
                }
                let id = Self::find(books, charge, id).unwrap_or_default();
                if books.payments.get(&id).map(|payment| payment.1) != Some(Payment::Paid) {
                    return RefundOutcome::Refused(RailFailure {
                        code: "not_paid".to_owned(),
                        message: "There is nothing to pay back.".to_owned(),
                    });
                }
                let number = before.unwrap_or_else(|| {
                    books.refunds.push(id);
                    books.refunds.len() - 1
                });
                RefundOutcome::Done {
                    refund_id: Some(format!("re_{}", number + 1)),
                }
            })
        })
    }

    /// The messages have the form `event payment`, and are authentic if a header says so.
    fn parse_callback(&self, message: CallbackMessage<'_>) -> Result<CallbackHint, Problem> {
        let genuine = message
            .headers
            .iter()
            .any(|(name, value)| name == "x-bank" && value == "genuine");
        let text = String::from_utf8_lossy(message.body).into_owned();
        match text.split_once(' ') {
            Some((event, about)) if genuine => Ok(CallbackHint {
                event_id: event.to_owned(),
                about: Some(about.to_owned()),
            }),
            _ => Err(Problem::CallbackRefused {
                reason: "is not the bank's",
            }),
        }
    }
}
