//! Stripe's units of money where they differ from ISO 4217.
//!
//! Invariant: an amount is converted exactly or not at all.

use crate::money::{Cents, Currency};
use crate::problem::Problem;
use crate::rail::Charge;

/// The amount in Stripe's units, or the reason why there is none.
pub(in crate::rail) fn amount(cents: Cents, currency: Currency) -> Result<u64, String> {
    let units = cents.get();
    match (currency.as_str(), currency.minor_digits()) {
        (code, None) => Err(format!(
            "{code} is not a currency that payments are made in"
        )),
        // Stripe's documentation counts whole shillings in one place and hundredths in another.
        ("UGX", _) => {
            Err("Stripe's documentation contradicts itself on the unit of UGX".to_owned())
        }
        // Stripe counts hundredths, which must be whole hundreds.
        ("ISK", _) => units
            .checked_mul(100)
            .ok_or_else(|| "it exceeds the largest amount of Stripe".to_owned()),
        // Stripe counts whole units.
        ("MGA", _) if units.is_multiple_of(100) => Ok(units / 100),
        ("MGA", _) => Err("Stripe accepts only whole MGA: a multiple of 100".to_owned()),
        (code, Some(3)) if !units.is_multiple_of(10) => Err(format!(
            "Stripe accepts no thousandths of {code}: a multiple of 10"
        )),
        (_, Some(_)) => Ok(units),
    }
}

/// The amount of a charge in Stripe's units, if it is representable.
pub(in crate::rail) fn amount_of(charge: &Charge) -> Option<u64> {
    amount(charge.amount, charge.currency).ok()
}

pub(in crate::rail) fn check(cents: Cents, currency: Currency) -> Result<(), Problem> {
    match amount(cents, currency) {
        Ok(_) => Ok(()),
        Err(why) => Err(Problem::field(
            "amount_cents",
            format!("cannot be paid exactly by this rail: {why}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s18_stripe_gets_the_amount_that_was_meant_or_none() {
        for (code, cents, expected) in [
            ("EUR", 1_500, Some(1_500)),
            ("JPY", 1_500, Some(1_500)),
            ("KRW", 1, Some(1)),
            ("ISK", 5, Some(500)),
            ("ISK", 0, Some(0)),
            ("MGA", 1_500, Some(15)),
            ("MGA", 1_550, None),
            ("KWD", 5_120, Some(5_120)),
            ("KWD", 5_124, None),
            ("BHD", 10, Some(10)),
            ("UGX", 500, None),
            ("HUF", 1_045, Some(1_045)),
            ("XXX", 1_500, None),
        ] {
            let (cents, currency) = (Cents::new(cents).unwrap(), code.parse().unwrap());
            assert_eq!(amount(cents, currency).ok(), expected, "{code}");
            assert_eq!(check(cents, currency).is_ok(), expected.is_some());
        }
    }
}
