//! Tokens of the compatibility profile: JSON Web Tokens with HMAC-SHA-256, and no others.
//!
//! Invariant: the server fixes the algorithm, not the token; claims are read only after the signature was verified in
//! constant time.

use std::fmt;

use crate::problem::Problem;
use consign_kernel::ids::Micros;
use data_encoding::BASE64URL_NOPAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use consign_web::secret_text::SecretText;

const ALGORITHM: &str = "HS256";
const ISSUER: &str = "wab";
const AUDIENCE: &str = "wab:user";
const USER_CHARS_MAX: usize = 128;

/// Verifies tokens with one secret.
pub struct UserTokens(SecretText);

impl fmt::Debug for UserTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserTokens(..)")
    }
}

impl UserTokens {
    pub fn new(secret: SecretText) -> Self {
        Self(secret)
    }

    /// The user of a token.
    pub(super) fn user(&self, token: &str, now: Micros) -> Result<String, Problem> {
        let claims = self.claims(token)?;
        if claims["iss"] != ISSUER {
            return refused("it has another issuer");
        }
        let audience = &claims["aud"];
        let several = audience
            .as_array()
            .is_some_and(|all| all.contains(&AUDIENCE.into()));
        if audience != AUDIENCE && !several {
            return refused("it is for another audience");
        }
        if moment(&claims, "exp")?.is_some_and(|end| now >= end) {
            return refused("it has expired; get a new one");
        }
        if moment(&claims, "nbf")?.is_some_and(|start| now < start) {
            return refused("it is not valid yet");
        }
        user(&claims["id"])
    }

    fn claims(&self, token: &str) -> Result<Value, Problem> {
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return refused("it does not have three parts");
        };
        let fields = decoded(header)?;
        // A token that chooses the algorithm could disable the check.
        if fields["alg"] != ALGORITHM || fields.get("crit").is_some() {
            return refused("its algorithm is not HS256");
        }
        let Ok(signature) = BASE64URL_NOPAD.decode(signature.as_bytes()) else {
            return refused("it cannot be read");
        };
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.reveal().as_bytes())
            .expect("HMAC takes a key of any length");
        mac.update(header.as_bytes());
        mac.update(b".");
        mac.update(claims.as_bytes());
        if mac.verify_slice(&signature).is_err() {
            return refused("its signature is not valid");
        }
        decoded(claims)
    }
}

fn refused<T>(reason: &'static str) -> Result<T, Problem> {
    Err(Problem::TokenRefused { reason })
}

fn decoded(part: &str) -> Result<Value, Problem> {
    let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).ok();
    let value: Option<Value> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    match value {
        Some(value) if value.is_object() => Ok(value),
        _ => refused("it cannot be read"),
    }
}

/// Seconds since 1970, with an optional fraction; values out of range are clamped.
fn moment(claims: &Value, name: &str) -> Result<Option<Micros>, Problem> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a cast from a float saturates"
            )]
            Some(seconds) => Ok(Some(Micros((seconds * 1e6) as i64))),
            None => refused("one of its times is not a number"),
        },
    }
}

fn user(id: &Value) -> Result<String, Problem> {
    let id = match id {
        Value::String(id) => id.clone(),
        Value::Number(id) if id.is_u64() => id.to_string(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            String::new()
        }
    };
    if (1..=USER_CHARS_MAX).contains(&id.chars().count()) {
        return Ok(id);
    }
    refused("it names no user of 1 to 128 characters")
}

#[cfg(test)]
mod tests {
    use consign_kernel::ids::SECOND_US;
    use serde_json::json;

    use super::*;

    const SECRET: &str = "a secret of at least 32 characters";
    const NOW: Micros = Micros(1_800_000_000 * SECOND_US);

    fn token(secret: &str, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let signed = format!("{}.{}", part(header), part(claims));
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(signed.as_bytes());
        let signature = BASE64URL_NOPAD.encode(&mac.finalize().into_bytes());
        format!("{signed}.{signature}")
    }

    fn good() -> Value {
        json!({"id": "user-1", "iss": "wab", "aud": "wab:user", "exp": 1_800_000_060})
    }

    fn checked(token: &str) -> Result<String, Problem> {
        UserTokens::new(SecretText::new(SECRET.to_owned())).user(token, NOW)
    }

    #[test]
    fn at_104_a_token_names_its_user() {
        let header = json!({"alg": "HS256", "typ": "JWT"});
        assert_eq!(checked(&token(SECRET, &header, &good())).unwrap(), "user-1");
        let mut other = good();
        other["aud"] = json!(["else", "wab:user"]);
        other["id"] = json!(42);
        other["nbf"] = json!(1_799_999_999.5);
        assert_eq!(checked(&token(SECRET, &header, &other)).unwrap(), "42");
    }

    #[test]
    fn at_104_no_other_token_is_good() {
        let header = json!({"alg": "HS256"});
        let whole = token(SECRET, &header, &good());
        let mut bad = vec![
            token("another secret of 32 characters...", &header, &good()),
            token(SECRET, &json!({"alg": "none"}), &good()),
            token(SECRET, &json!({"alg": "HS512"}), &good()),
            token(SECRET, &json!({"alg": "HS256", "crit": ["exp"]}), &good()),
            whole[..=whole.rfind('.').unwrap()].to_owned(),
            whole[..whole.len() - 1].to_owned(),
            format!("{whole}.x"),
            format!("x{whole}"),
            String::new(),
            "..".to_owned(),
        ];
        for (claim, value) in [
            ("iss", json!("else")),
            ("iss", Value::Null),
            ("aud", json!("wab:admin")),
            ("aud", json!(["wab:admin"])),
            ("exp", json!(1_800_000_000)),
            ("exp", json!("soon")),
            ("nbf", json!(1_800_000_001)),
            ("id", Value::Null),
            ("id", json!("")),
            ("id", json!(1.5)),
            ("id", json!("x".repeat(129))),
        ] {
            let mut claims = good();
            claims[claim] = value;
            bad.push(token(SECRET, &header, &claims));
        }
        for token in bad {
            let problem = checked(&token).unwrap_err();
            assert!(
                matches!(problem, Problem::TokenRefused { .. }),
                "{problem:?}"
            );
            assert!(!problem.to_string().contains(SECRET));
        }
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let tokens = UserTokens::new(SecretText::new(SECRET.to_owned()));
        assert!(!format!("{tokens:?}").contains(SECRET));
    }
}
