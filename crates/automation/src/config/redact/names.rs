//! Recognises keys whose value is secret.
//!
//! A key is split into words, however they are joined: `smtp_pass`, `smtp-pass`, `smtpPass`, `SMTP.PASS`. Masking too much is a
//! nuisance; masking too little is a leak.

use consign_kernel::plant::{self, Plant};

/// Anywhere in a key, even inside a word.
const SURE: &[&str] = &["secret", "key", "token", "password"];
/// As one of the words; also at the end of one if long enough to be unambiguous.
const WORDS: &[&str] = &[
    "authentication",
    "authorization",
    "bearer",
    "connstr",
    "cookie",
    "cookies",
    "credential",
    "credentials",
    "creds",
    "dsn",
    "jwt",
    "mnemonic",
    "otp",
    "pass",
    "passcode",
    "passphrase",
    "passwd",
    "pat",
    "pin",
    "private",
    "pwd",
    "session",
    "sessionid",
    "sid",
    "totp",
];
const ENDINGS: &[&str] = &[
    "credential",
    "credentials",
    "passcode",
    "passphrase",
    "passwd",
    "pass",
    "pwd",
];
/// Only as the end of the last word: `basic_auth` is a secret, `auth_method` is not.
const LAST: &[&str] = &["auth", "signature"];
/// Pairs of words that together name a secret.
const PAIRS: &[(&str, &str)] = &[
    ("connection", "string"),
    ("conn", "string"),
    ("conn", "str"),
    ("recovery", "code"),
    ("recovery", "codes"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrecy {
    Secret,
    /// Secret unless the value rules it out.
    Likely,
    None,
}

pub(super) fn secrecy(key: &str) -> Secrecy {
    let lower = key.to_ascii_lowercase();
    if plant::on(Plant::ExactRedaction) {
        return if SURE.contains(&lower.as_str()) {
            Secrecy::Secret
        } else {
            Secrecy::None
        };
    }
    if SURE.iter().any(|word| lower.contains(word)) {
        return Secrecy::Secret;
    }
    let words = words(key);
    let is_word = words.iter().any(|word| {
        WORDS.contains(&word.as_str()) || ENDINGS.iter().any(|ending| word.ends_with(ending))
    });
    let is_last = words
        .last()
        .is_some_and(|word| LAST.iter().any(|ending| word.ends_with(ending)));
    let is_pair = words
        .windows(2)
        .any(|pair| PAIRS.contains(&(pair[0].as_str(), pair[1].as_str())));
    if is_word || is_last || is_pair {
        Secrecy::Likely
    } else {
        Secrecy::None
    }
}

pub(super) fn is_secret(key: &str) -> bool {
    secrecy(key) != Secrecy::None
}

/// Splits into lower-case words. A run of capitals is one word, up to the one that starts the next.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = key.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(at + 1);
        let ends_word = before.is_some_and(|before| before.is_lowercase() || before.is_numeric());
        let ends_run =
            before.is_some_and(char::is_uppercase) && after.is_some_and(|c| c.is_lowercase());
        if letter.is_uppercase() && (ends_word || ends_run) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_by_their_words_however_they_are_joined() {
        for key in [
            "authorization",
            "Authorization",
            "proxy-authorization",
            "dsn",
            "DB_DSN",
            "dbDsn",
            "passphrase",
            "passwd",
            "DBPASSWD",
            "pass",
            "smtp_pass",
            "smtpPass",
            "SMTP.PASS",
            "dbpass",
            "credential",
            "aws_credentials",
            "googleCredentials",
            "creds",
            "pat",
            "github_pat",
            "githubPAT",
            "GITHUB_PAT",
            "pin",
            "userPIN",
            "PINCode",
            "cookie",
            "setCookie",
            "private",
            "private_pem",
            "bearer",
            "auth",
            "basic_auth",
            "basicAuth",
            "oauth",
            "session",
            "session_id",
            "sessionId",
            "sid",
            "pwd",
            "connection_string",
            "connectionString",
            "ConnStr",
            "jwt",
            "otp",
            "apiKey",
            "monkey",
            "signature",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in [
            "author",
            "authority",
            "path",
            "patch",
            "pattern",
            "pinned",
            "spin",
            "spinner",
            "opinion",
            "passenger",
            "passthrough",
            "plugin_env_passthrough",
            "url",
            "user",
            "username",
            "name",
            "host",
            "auth_method",
            "signature_header",
            "compatible",
            "dispatch",
            "sidecar",
            "privately",
            "connection",
            "string",
            "",
        ] {
            assert!(!is_secret(key), "{key}");
        }
    }
}
