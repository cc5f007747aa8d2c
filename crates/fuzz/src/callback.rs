//! Messages of payment rails: only signed messages are accepted, and only within their time window.
//!
//! Input: header lines, an empty line, a body.

use consign_kernel::ids::{Micros, SECOND_US};
use consign_transactions::callback;
use consign_transactions::rail::standard_webhooks::WebhookSecrets;
use consign_transactions::rail::{
    CallbackMessage, HttpRail, Rail, StripeRail, TIMEOUT, http, stripe,
};

use crate::headers;

/// The only messages that were signed with these secrets; the seeds contain their signatures.
const STRIPE_SECRET: &str = "whsec_test";
const STRIPE_AT_S: i64 = 1_779_710_405;
const STRIPE_BODY: &[u8] =
    br#"{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_123"}}}"#;
const SITE_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SITE_AT_S: i64 = 1_614_265_330;
const SITE_BODY: &[u8] = br#"{"test": 2432232314}"#;

pub(crate) fn run(bytes: &[u8]) {
    let (head, body) = split(bytes);
    let headers: Vec<(String, String)> = headers::parse(head)
        .iter()
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        })
        .collect();
    let (stripe, site) = rails();
    hear(&stripe, &headers, body, STRIPE_AT_S, STRIPE_BODY);
    hear(&site, &headers, body, SITE_AT_S, SITE_BODY);
}

/// Splits at the empty line.
fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n");
    end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 2..]))
}

fn rails() -> (StripeRail, HttpRail) {
    let stripe = StripeRail::new(stripe::Options {
        base: stripe::BASE.to_owned(),
        secret: "sk_test".to_owned(),
        webhook_secrets: callback::StripeSecrets::new([STRIPE_SECRET.to_owned()]),
        timeout: TIMEOUT,
    });
    let site = HttpRail::new(http::Options {
        base: "http://127.0.0.1:1".to_owned(),
        secrets: WebhookSecrets::new([SITE_SECRET]).expect("a secret as it should be"),
        timeout: TIMEOUT,
    });
    (
        stripe.expect("an address as it should be"),
        site.expect("an address as it should be"),
    )
}

fn hear(rail: &dyn Rail, headers: &[(String, String)], body: &[u8], at_s: i64, signed: &[u8]) {
    let heard = |at_s: i64| {
        let now = Micros(at_s * SECOND_US);
        let message = CallbackMessage { headers, body, now };
        rail.parse_callback(message).is_ok()
    };
    if heard(at_s) {
        assert_eq!(body, signed, "a message that nobody signed is heard");
    }
    let late = at_s + callback::TOLERANCE_S + 1;
    assert!(!heard(late), "a message of long ago is heard");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_the_messages_that_were_signed() {
        let (stripe, site) = rails();
        for (rail, seed, at_s) in [
            (
                &stripe as &dyn Rail,
                &include_bytes!("../seeds/atp_callback/stripe")[..],
                STRIPE_AT_S,
            ),
            (
                &site,
                &include_bytes!("../seeds/atp_callback/site")[..],
                SITE_AT_S,
            ),
        ] {
            let (head, body) = split(seed);
            let headers: Vec<(String, String)> = headers::parse(head)
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect();
            let now = Micros(at_s * SECOND_US);
            let message = CallbackMessage {
                headers: &headers,
                body,
                now,
            };
            rail.parse_callback(message).unwrap();
        }
    }
}
