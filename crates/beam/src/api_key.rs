//! API keys of agents: `bk_`, the id of the agent in base64url, a dot, and a secret in base64url.
//!
//! Invariant: a key is shown once, when it is issued. Only [`digest`] is stored, and a presented
//! key is compared by its digest in constant time. The id inside a key tells which agent to
//! compare with; it proves nothing.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use consign_kernel::plant::{self, Plant};
use consign_web::secret_text::SecretText;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "bk_";

/// The random bytes in a key.
pub const SECRET_BYTES: usize = 24;

/// A new key of an agent. The caller draws the secret.
pub fn issue(beam_id: &str, secret: &[u8; SECRET_BYTES]) -> SecretText {
    SecretText::new(format!(
        "{PREFIX}{}.{}",
        BASE64_URL_SAFE_NO_PAD.encode(beam_id),
        BASE64_URL_SAFE_NO_PAD.encode(secret)
    ))
}

/// The id of the agent that a presented key claims to be of; `None` if it is not formed as a key.
pub fn claimed_beam_id(presented: &str) -> Option<String> {
    let (id, secret) = presented.strip_prefix(PREFIX)?.split_once('.')?;
    let id = BASE64_URL_SAFE_NO_PAD.decode(id).ok()?;
    let formed = !id.is_empty() && !secret.is_empty();
    formed.then(|| String::from_utf8(id).ok())?
}

/// The digest of a key that is stored: SHA-256 in lower-case hex.
pub fn digest(key: &str) -> String {
    if plant::on(Plant::PlainApiKey) {
        return key.to_owned();
    }
    HEXLOWER.encode(&Sha256::digest(key))
}

/// Whether a presented key has the stored digest. The duration does not depend on where they differ.
pub fn matches(stored_digest: &str, presented: &str) -> bool {
    let presented = digest(presented);
    stored_digest.as_bytes().ct_eq(presented.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_key_names_its_agent_and_matches_no_other(
            id in ".{1,40}",
            secrets: [[u8; SECRET_BYTES]; 2],
        ) {
            let [key, other] = secrets.map(|secret| issue(&id, &secret));
            prop_assert_eq!(claimed_beam_id(key.reveal()), Some(id));
            let stored = digest(key.reveal());
            prop_assert!(matches(&stored, key.reveal()));
            prop_assert_eq!(matches(&stored, other.reveal()), secrets[0] == secrets[1]);
        }

        #[test]
        fn any_text_claims_an_agent_or_none(text in any::<String>()) {
            if let Some(id) = claimed_beam_id(&text) {
                prop_assert!(!id.is_empty() && text.starts_with(PREFIX));
            }
        }
    }

    const ALICE: &str = "alice@acme.beam.directory";
    const KEY: &str = "bk_YWxpY2VAYWNtZS5iZWFtLmRpcmVjdG9yeQ.-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk";

    fn key() -> SecretText {
        let mut secret = [0; SECRET_BYTES];
        for (byte, value) in secret.iter_mut().zip((0_u8..=0xfb).rev()) {
            *byte = value;
        }
        issue(ALICE, &secret)
    }

    #[test]
    fn be_082_a_key_names_its_agent_and_carries_the_secret() {
        assert_eq!(key().reveal(), KEY);
        assert_eq!(claimed_beam_id(KEY).as_deref(), Some(ALICE));
    }

    #[test]
    fn be_082_the_stored_digest_is_sha_256_in_hex_and_matches_one_key() {
        consign_testkit::plants::from_environment();
        let stored = digest(KEY);
        assert_eq!(
            stored,
            "18528e8e542e66c53c90933d3d4a4783547071fdc82ff2b49778200158c2200c"
        );
        assert!(matches(&stored, KEY));
        for other in [
            "",
            "bk_",
            &KEY[..KEY.len() - 1],
            &format!("{KEY}="),
            &stored,
        ] {
            assert!(!matches(&stored, other), "{other}");
        }
        assert!(!matches("", ""));
        assert!(!matches("", KEY));
        assert!(!matches(&stored.to_uppercase(), KEY));
    }

    #[test]
    fn be_082_text_that_is_no_key_claims_no_agent() {
        for text in [
            "",
            "bk_",
            "bk_.secret",
            "bk_YWxpY2U",
            "bk_YWxpY2U.",
            "bh_YWxpY2U.secret",
            "YWxpY2U.secret",
            "bk_*.secret",
            "bk__w.secret",
        ] {
            assert_eq!(claimed_beam_id(text), None, "{text}");
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        assert!(!format!("{:?}", key()).contains("bk_"));
    }
}
