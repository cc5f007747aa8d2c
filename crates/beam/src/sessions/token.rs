//! The token of a session: a JSON Web Token, signed with HMAC-SHA-256.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use consign_web::secret_text::SecretText;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::{OperatorSession, Role};

/// Tokens of other services are not sessions, even if they are signed with the same secret.
const TYPE: &str = "beam-admin";
const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
const TOKEN_BYTES_MAX: usize = 2_048;

/// What a token states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionClaims {
    typ: String,
    pub(super) sid: String,
    pub(super) email: String,
    pub(super) role: Role,
    /// Milliseconds of the wall clock, as existing clients read it.
    pub(super) exp: i64,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
}

impl SessionClaims {
    pub(super) fn of(session: &OperatorSession) -> Self {
        Self {
            typ: TYPE.to_owned(),
            sid: session.id.clone(),
            email: session.email.clone(),
            role: session.role,
            exp: session.expires_at_ms,
        }
    }

    pub(super) fn sign(&self, secret: &SecretText) -> SecretText {
        let claims = serde_json::to_string(self).expect("claims have string keys only");
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(HEADER), encode(&claims));
        let signature = mac(secret, &signed).finalize().into_bytes();
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        SecretText::new(format!("{signed}.{signature}"))
    }

    /// The claims of a token that this secret signed. The caller checks when they end.
    pub(super) fn verify(token: &str, secret: &SecretText) -> Option<Self> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        // The comparison takes the same time wherever the two differ.
        mac(secret, signed).verify_slice(&signature).ok()?;
        let header = BASE64_URL_SAFE_NO_PAD.decode(header).ok()?;
        let header: TokenHeader = serde_json::from_slice(&header).ok()?;
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
        let claims: Self = serde_json::from_slice(&claims).ok()?;
        (header.alg == "HS256" && claims.typ == TYPE).then_some(claims)
    }
}

fn mac(secret: &SecretText, text: &str) -> Hmac<Sha256> {
    let key = secret.reveal().as_bytes();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> SecretText {
        SecretText::new("a-session-secret-of-the-tests".to_owned())
    }

    fn claims() -> SessionClaims {
        SessionClaims::of(&OperatorSession {
            id: "0123".to_owned(),
            email: "ada@example.com".to_owned(),
            role: Role::Viewer,
            expires_at_ms: 1_767_225_600_000,
        })
    }

    fn signed(header: &str, claims: &str) -> String {
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = mac(&secret(), &signed).finalize().into_bytes();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn a_token_has_exactly_the_members_that_clients_read() {
        let token = claims().sign(&secret());
        let claims_text = token.reveal().split('.').nth(1).unwrap();
        let text = BASE64_URL_SAFE_NO_PAD.decode(claims_text).unwrap();
        let expected = r#"{"typ":"beam-admin","sid":"0123","email":"ada@example.com","role":"viewer","exp":1767225600000}"#;
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let verified = SessionClaims::verify(token.reveal(), &secret());
        assert_eq!(verified, Some(claims()));
    }

    #[test]
    fn a_token_that_was_not_signed_as_a_session_is_refused() {
        let token = claims().sign(&secret()).reveal().to_owned();
        let refused = |token: &str| SessionClaims::verify(token, &secret()).is_none();
        let claims_text = serde_json::to_string(&claims()).unwrap();
        assert!(!refused(&signed(HEADER, &claims_text)));
        let other = SecretText::new("another-secret-of-the-tests".to_owned());
        assert!(SessionClaims::verify(&token, &other).is_none());
        let (unsigned, _) = token.rsplit_once('.').unwrap();
        assert!(refused(unsigned));
        assert!(refused(&format!("{unsigned}.")));
        // Half of a signature.
        assert!(refused(&token[..token.len() - 22]));
        let raised = claims_text.replace("viewer", "admin");
        let (_, signature) = token.rsplit_once('.').unwrap();
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let forged = format!("{}.{}.{signature}", encode(HEADER), encode(&raised));
        assert!(refused(&forged));
        assert!(refused(&signed(r#"{"alg":"none"}"#, &claims_text)));
        assert!(refused(&signed(r#"{"alg":"HS512"}"#, &claims_text)));
        let of_user = claims_text.replace("beam-admin", "beam-user");
        assert!(refused(&signed(HEADER, &of_user)));
        let further = claims_text.replace('{', r#"{"aud":"x","#);
        assert!(refused(&signed(HEADER, &further)));
        assert!(refused(""));
        assert!(refused(".."));
    }
}
