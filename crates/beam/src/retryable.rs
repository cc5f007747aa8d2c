//! Which failures another attempt may overcome: the bus asks it of the directory's answer, the directory of a failed intent.
//!
//! The two lists differ on purpose. The bus repeats whatever is not known to be final; the directory delivers an intent again
//! only if its recipient has not answered it.

use consign_kernel::plant::{self, Plant};

/// Codes after which the bus gives up, whatever the status.
const FINAL_CODES: [&str; 6] = [
    "BAD_REQUEST",
    "FORBIDDEN",
    "INVALID_INTENT",
    "NONCE_REUSE_CONFLICT",
    "UNAUTHORIZED",
    "UNKNOWN_SENDER",
];

/// Statuses of the 4xx class that ask for another attempt: timeout, intent in progress, rate limit.
const RETRYABLE_STATUSES: [u16; 3] = [408, 409, 429];

/// Codes of intents that were not answered by their recipient.
const UNANSWERED_CODES: [&str; 4] = [
    "OFFLINE",
    "TIMEOUT",
    "DELIVERY_FAILED",
    "DIRECT_HTTP_FAILED",
];

/// Whether the bus tries a failed delivery again. The status is `None` if no response arrived. An application's failure, with
/// status 200 and a code of its own, is retried as well: the directory then repeats the stored result.
pub fn bus_retries(status: Option<u16>, code: Option<&str>) -> bool {
    if plant::on(Plant::RetryFinalFailure) {
        return true;
    }
    if code.is_some_and(|code| FINAL_CODES.contains(&code)) {
        return false;
    }
    status
        .is_none_or(|status| !(400..500).contains(&status) || RETRYABLE_STATUSES.contains(&status))
}

/// Whether a failed intent with this code is delivered again when its nonce is sent again.
pub fn repeated_nonce_restarts(code: Option<&str>) -> bool {
    code.is_some_and(|code| UNANSWERED_CODES.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn be_034_client_errors_are_final_except_408_409_and_429() {
        consign_testkit::plants::from_environment();
        for status in 400..500 {
            let expected = matches!(status, 408 | 409 | 429);
            assert_eq!(bus_retries(Some(status), None), expected, "{status}");
            let with_code = bus_retries(Some(status), Some("WHATEVER"));
            assert_eq!(with_code, expected, "{status}");
        }
        for status in (100..400).chain(500..600) {
            assert!(bus_retries(Some(status), None), "{status}");
        }
    }

    #[test]
    fn be_034_some_codes_are_final_with_every_status() {
        for code in [
            "BAD_REQUEST",
            "FORBIDDEN",
            "INVALID_INTENT",
            "NONCE_REUSE_CONFLICT",
            "UNAUTHORIZED",
            "UNKNOWN_SENDER",
        ] {
            for status in [None, Some(200), Some(403), Some(409), Some(500)] {
                assert!(!bus_retries(status, Some(code)), "{status:?} {code}");
            }
        }
    }

    #[test]
    fn be_034_the_directory_is_asked_again_after_its_own_failures() {
        for (status, code) in [
            (Some(503), "OFFLINE"),
            (Some(504), "TIMEOUT"),
            (Some(409), "IN_PROGRESS"),
            (Some(429), "RATE_LIMITED"),
            (Some(500), "RELAY_ERROR"),
            (Some(502), "DELIVERY_FAILED"),
            (Some(200), "OUT_OF_STOCK"),
            (None, "TIMEOUT"),
            (None, "DELIVERY_FAILED"),
        ] {
            assert!(bus_retries(status, Some(code)), "{status:?} {code}");
        }
        assert!(bus_retries(None, None));
    }

    #[test]
    fn a_repeated_nonce_restarts_intents_that_were_not_answered() {
        for code in [
            "OFFLINE",
            "TIMEOUT",
            "DELIVERY_FAILED",
            "DIRECT_HTTP_FAILED",
        ] {
            assert!(repeated_nonce_restarts(Some(code)), "{code}");
        }
        for code in [
            None,
            Some("RESULT_ERROR"),
            Some("FORBIDDEN"),
            Some("offline"),
        ] {
            assert!(!repeated_nonce_restarts(code), "{code:?}");
        }
    }
}
