//! How Stripe counts money where it does not count as ISO 4217 does.
//!
//! Invariant: an amount is converted exactly or not at all.

use crate::money::{Cents, Currency};
use crate::problem::Problem;
use crate::rail::Charge;

/// The amount as Stripe wants it. The reason says why there is none.
pub(in crate::rail) fn amount(cents: Cents, currency: Currency) -> Result<u64, String> {
    let units = cents.get();
    match (currency.as_str(), currency.minor_digits()) {
        (code, None) => Err(format!(
            "{code} is not a currency that payments are made in"
        )),
        // Its documentation counts whole shillings in one place, and hundredths in another.
        ("UGX", _) => Err("Stripe does not say clearly how it counts UGX".to_owned()),
        // Counted in hundredths there, of which there must be whole hundreds.
        ("ISK", _) => units
            .checked_mul(100)
            .ok_or_else(|| "it is more than Stripe can count".to_owned()),
        // Counted as whole ones there.
        ("MGA", _) if units.is_multiple_of(100) => Ok(units / 100),
        ("MGA", _) => Err("Stripe takes whole MGA alone: a multiple of 100".to_owned()),
        (code, Some(3)) if !units.is_multiple_of(10) => Err(format!(
            "Stripe takes no thousandths of {code}: a multiple of 10"
        )),
        (_, Some(_)) => Ok(units),
    }
}

/// Of a charge, if Stripe can count it.
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
