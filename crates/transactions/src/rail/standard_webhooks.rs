//! Standard Webhooks signatures (<https://www.standardwebhooks.com>): authentication between this server and a site's own
//! endpoint.
//!
//! Invariant: a message is accepted only if one of the secrets signed its id, time and exact bytes recently.

use std::fmt;

use data_encoding::BASE64;
use hmac::Mac as _;

use super::CallbackMessage;
use super::client::RailSetupError;
use crate::callback;
use crate::problem::Problem;

pub(super) const ID: &str = "webhook-id";
pub(super) const TIMESTAMP: &str = "webhook-timestamp";
pub(super) const SIGNATURE: &str = "webhook-signature";

const PREFIX: &str = "whsec_";
const SECRET_BYTES_MIN: usize = 24;
const SECRET_BYTES_MAX: usize = 64;

/// The secrets shared with an endpoint. The first one signs; all are accepted, so that secrets can be rotated.
#[derive(Clone)]
pub struct WebhookSecrets(Vec<Vec<u8>>);

impl WebhookSecrets {
    /// Each is `whsec_` and the Base64 of 24 to 64 bytes.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Result<Self, RailSetupError> {
        let secrets: Result<Vec<_>, _> = secrets.into_iter().map(decode).collect();
        let secrets = secrets?;
        if secrets.is_empty() {
            return Err(RailSetupError::Secret {
                reason: "is missing; make one with: echo whsec_$(openssl rand -base64 32)",
            });
        }
        Ok(Self(secrets))
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, at_s: i64, body: &[u8]) -> String {
        let at = at_s.to_string();
        let parts = parts(id, &at, body);
        let signature = self.0.first().map(|secret| callback::mac(secret, &parts));
        let signature = signature.map(|mac| BASE64.encode(&mac.finalize().into_bytes()));
        format!("v1,{}", signature.unwrap_or_default())
    }

    /// Returns the id of an authentic and recent message.
    pub(super) fn check<'a>(&self, message: CallbackMessage<'a>) -> Result<&'a str, Problem> {
        let refused = |reason| Problem::CallbackRefused { reason };
        let header = |name| {
            let value = message.header(name);
            value
                .ok_or_else(|| refused("is not a Standard Webhooks signature: a header is missing"))
        };
        let (id, at, signatures) = (header(ID)?, header(TIMESTAMP)?, header(SIGNATURE)?);
        let at_s: i64 = at.parse().map_err(|_| refused("has no valid time"))?;
        let parts = parts(id, at, message.body);
        let macs = self.0.iter().map(|secret| callback::mac(secret, &parts));
        let signatures = signatures.split(' ').filter_map(read);
        callback::check(macs, signatures, at_s, message.now)?;
        Ok(id)
    }
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookSecrets({})", self.0.len())
    }
}

fn decode(secret: &str) -> Result<Vec<u8>, RailSetupError> {
    let secret = secret.trim();
    let text = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let decoded = BASE64.decode(text.as_bytes()).ok();
    decoded
        .filter(|bytes| (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()))
        .ok_or(RailSetupError::Secret {
            reason: "is not whsec_ and the Base64 of 24 to 64 bytes; make one with: echo whsec_$(openssl rand -base64 32)",
        })
}

/// One signature of a header, which may contain several schemes.
fn read(signature: &str) -> Option<Vec<u8>> {
    let text = signature.strip_prefix("v1,")?;
    BASE64.decode(text.as_bytes()).ok()
}

/// The signed parts.
fn parts<'a>(id: &'a str, at: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", at.as_bytes(), b".", body]
}

/// The current time, for an outgoing message.
pub(super) fn now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use consign_kernel::ids::{Micros, SECOND_US};

    use super::*;
    use crate::callback::TOLERANCE_S;

    // The example that the Standard Webhooks libraries use in their tests.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE_ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT_S: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn check_at(signature: &str, body: &[u8], secrets: &[&str], now_s: i64) -> bool {
        let headers = [
            (ID.to_owned(), MESSAGE_ID.to_owned()),
            (TIMESTAMP.to_owned(), AT_S.to_string()),
            (SIGNATURE.to_owned(), signature.to_owned()),
        ];
        let message = CallbackMessage {
            headers: &headers,
            body,
            now: Micros(now_s * SECOND_US),
        };
        let secrets = WebhookSecrets::new(secrets.iter().copied()).unwrap();
        match secrets.check(message) {
            Ok(id) => id == MESSAGE_ID,
            Err(problem) => {
                assert!(
                    matches!(problem, Problem::CallbackRefused { .. }),
                    "{problem:?}"
                );
                false
            }
        }
    }

    #[test]
    fn signatures_are_those_of_other_implementations() {
        let secrets = WebhookSecrets::new([SECRET]).unwrap();
        assert_eq!(secrets.sign(MESSAGE_ID, AT_S, BODY), SIGNED);
        assert!(check_at(SIGNED, BODY, &[SECRET], AT_S));
    }

    #[test]
    fn a_forged_or_old_message_is_refused() {
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert!(check_at(SIGNED, BODY, &[other, SECRET], AT_S));
        assert!(!check_at(SIGNED, BODY, &[other], AT_S));
        assert!(!check_at(SIGNED, &BODY[1..], &[SECRET], AT_S));
        assert!(check_at(SIGNED, BODY, &[SECRET], AT_S + TOLERANCE_S));
        assert!(!check_at(SIGNED, BODY, &[SECRET], AT_S + TOLERANCE_S + 1));
        assert!(!check_at(SIGNED, BODY, &[SECRET], AT_S - TOLERANCE_S - 1));
        let several = format!("v1a,xx v1,AAAA {SIGNED}");
        assert!(check_at(&several, BODY, &[SECRET], AT_S));
        let wrong = format!("v1,{} ", BASE64.encode(&[0; 32]));
        let late = |n| format!("{}{SIGNED}", wrong.repeat(n));
        assert!(check_at(&late(7), BODY, &[SECRET], AT_S));
        assert!(!check_at(&late(8), BODY, &[SECRET], AT_S));
        for signature in ["", "v1,", "v1", &SIGNED[3..], &SIGNED.replace("v1", "v2")] {
            assert!(!check_at(signature, BODY, &[SECRET], AT_S), "{signature}");
        }
    }

    #[test]
    fn a_message_without_its_headers_is_refused() {
        let secrets = WebhookSecrets::new([SECRET]).unwrap();
        let message = CallbackMessage {
            headers: &[],
            body: BODY,
            now: Micros(AT_S * SECOND_US),
        };
        assert!(secrets.check(message).is_err());
    }

    #[test]
    fn a_secret_that_is_weak_or_no_base64_is_refused_and_not_shown() {
        for secret in [
            "",
            "whsec_",
            "whsec_AAAA",
            "hunter2hunter2hunter2hunter2hunter2!",
        ] {
            let refused = WebhookSecrets::new([secret]).unwrap_err().to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        assert!(WebhookSecrets::new([]).is_err());
        assert_eq!(
            format!("{:?}", WebhookSecrets::new([SECRET]).unwrap()),
            "WebhookSecrets(1)"
        );
    }
}
