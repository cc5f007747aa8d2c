//! Secrets to compare with, and the `Authorization` header that contains them.
//!
//! Invariant: the duration of a comparison reveals neither the bytes nor the length of the secret, and no `Debug`
//! output shows one. Each face decides which credential allows what.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use http::{HeaderMap, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The minimum length of a chosen secret; shorter ones can be guessed even at a low rate.
pub const SECRET_CHARS_MIN: usize = 16;

/// A configured secret. Only its digest is stored.
#[derive(Clone)]
pub struct SecretDigest {
    /// Absent for the empty secret, which nothing matches: an unset password allows no access.
    digest: Option<[u8; 32]>,
}

impl SecretDigest {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the caller hands its copy over instead of keeping one around"
    )]
    pub fn new(text: String) -> Self {
        Self {
            digest: (!text.is_empty()).then(|| digest(&text)),
        }
    }

    /// Whether `presented` is this secret. Both sides are hashed first, so that the compared lengths are equal.
    pub fn matches(&self, presented: &str) -> bool {
        let presented = digest(presented);
        self.digest
            .is_some_and(|digest| digest.ct_eq(&presented).into())
    }
}

impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretDigest(..)")
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// The content of `Authorization: Basic`.
#[derive(Clone, PartialEq, Eq)]
pub struct Basic {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Basic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Basic")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// User and password of a valid `Basic` header.
pub fn basic(headers: &HeaderMap) -> Option<Basic> {
    /// Some clients omit the padding.
    const BASE64: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let decoded = BASE64.decode(authorization(headers, "basic")?).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    // Only the user name cannot contain a colon.
    let (user, password) = text.split_once(':')?;
    Some(Basic {
        user: user.to_owned(),
        password: password.to_owned(),
    })
}

/// The token of a valid `Bearer` header.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    authorization(headers, "bearer").filter(|token| !token.is_empty())
}

/// The credentials after `scheme` in the only `Authorization` header. Two headers are ambiguous, because a proxy may
/// have checked the other one, so both are ignored.
fn authorization<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let only = all.next().filter(|_| all.next().is_none())?;
    let (named, credentials) = only.to_str().ok()?.split_once(' ')?;
    named
        .eq_ignore_ascii_case(scheme)
        .then(|| credentials.trim())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn with(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_secret_matches_itself_only_and_an_empty_one_nothing() {
        let secret = SecretDigest::new("hunter2".to_owned());
        assert!(secret.matches("hunter2"));
        assert!(!secret.matches("hunter"));
        assert!(!secret.matches("hunter22"));
        assert!(!secret.matches(""));

        let unset = SecretDigest::new(String::new());
        assert!(!unset.matches(""));
        assert!(!unset.matches("x"));
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let basic = Basic {
            user: "admin".to_owned(),
            password: "hunter2".to_owned(),
        };
        let shown = format!("{:?} {basic:?}", SecretDigest::new("hunter2".to_owned()));
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("admin"));
    }

    #[test]
    fn basic_is_read_with_or_without_padding_and_in_any_case() {
        let expected = Some(Basic {
            user: "admin".to_owned(),
            password: "a:b".to_owned(),
        });
        assert_eq!(basic(&with(&["Basic YWRtaW46YTpi"])), expected);
        assert_eq!(basic(&with(&["bASIC  YWRtaW46YTpi "])), expected);
        assert_eq!(basic(&with(&["Basic YTo="])), basic(&with(&["Basic YTo"])));
        assert_eq!(basic(&with(&["Basic YTo="])).unwrap().password, "");
    }

    #[test]
    fn what_is_not_a_single_readable_header_is_nothing() {
        assert_eq!(basic(&with(&[])), None);
        assert_eq!(basic(&with(&["Basic"])), None);
        assert_eq!(basic(&with(&["Basic !!"])), None);
        assert_eq!(basic(&with(&["Basic YWRtaW4="])), None, "no colon");
        assert_eq!(basic(&with(&["Basic /zo="])), None, "not UTF-8");
        assert_eq!(basic(&with(&["Bearer YTo="])), None);
        assert_eq!(basic(&with(&["Basic YTo=", "Basic YTo="])), None);
    }

    #[test]
    fn bearer_gives_the_token() {
        assert_eq!(bearer(&with(&["Bearer abc.def"])), Some("abc.def"));
        assert_eq!(bearer(&with(&["bearer abc"])), Some("abc"));
        assert_eq!(bearer(&with(&["Bearer "])), None);
        assert_eq!(bearer(&with(&["Basic abc"])), None);
    }
}
