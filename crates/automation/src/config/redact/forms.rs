//! Recognises secrets by the form of a text, whatever its key is.

use std::sync::LazyLock;

use regex_lite::{Captures, Regex};

use super::names;

/// PEM blocks of keys and certificates.
const BLOCK: &str = "-----BEGIN ";
/// Prefixes of addresses that are not user names.
const ADDRESSES: &[&str] = &["mailto", "acct", "sip", "sips", "xmpp"];
/// A word of this length after `Basic` or `Token` is a credential and not part of a sentence.
const CREDENTIAL_CHARS_MIN: usize = 16;

static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)
        \b(?:
            (?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}
          | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_[A-Za-z0-9_]{16,} | gl(?:pat|dt|rt|cbt)-[A-Za-z0-9_\-]{16,}
          | (?:sk|rk)_(?:live|test)_[A-Za-z0-9]{8,} | whsec_[A-Za-z0-9+/=]{8,}
          | sk-[A-Za-z0-9_\-]{16,}
          | xox[abeoprs]-[A-Za-z0-9\-]{8,} | xapp-[A-Za-z0-9\-]{8,}
          | AIza[A-Za-z0-9_\-]{30,} | ya29\.[A-Za-z0-9_\-]{16,} | GOCSPX-[A-Za-z0-9_\-]{16,}
          | eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{4,}\.[A-Za-z0-9_\-]*
          | npm_[A-Za-z0-9]{16,} | pypi-[A-Za-z0-9_\-]{16,} | hf_[A-Za-z0-9]{16,} | do[opr]_v1_[a-f0-9]{16,}
          | SG\.[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,} | shp(?:at|ca|pa|ss)_[A-Za-z0-9]{16,} | AGE-SECRET-KEY-1[A-Z0-9]{16,}
          | (?:ck|ca|cd|cm|ct|tk)_[a-f0-9]{32,}
        )",
    )
});
/// URLs that are secret as a whole: anyone who has them may post.
static HOOK: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/|\.webhook\.office\.com/webhookb2/)\S+",
    )
});
static URL_PASSWORD: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)([a-z][a-z0-9+.\-]*://[^\s/?\#:@"']*):([^\s"']*)@"#));
static URL_TOKEN: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?i)([a-z][a-z0-9+.\-]*://)([^\s/?\#:@"']{16,})@"#));
/// Without a scheme, as a common `MySQL` driver expects it, and as `user:password@host`.
static DRIVER_PASSWORD: LazyLock<Regex> =
    LazyLock::new(|| regex(r"([^\s:@/]+):(\S+)@((?:tcp|udp|unix)\()"));
static BARE_PASSWORD: LazyLock<Regex> = LazyLock::new(|| regex(r"^([^\s/:@]+):(\S+)@([^\s@]+)$"));
static USER_FLAG: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(^|\s)(-u|--user|--proxy-user)([\s=]+["']?[^\s:"']+):([^\s"']+)"#));
static HEADER: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^(\s*)([A-Za-z0-9_\-]+)(\s*:\s+)(\S.*)$"));
/// An assignment, but not a comparison with `==`.
static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"([A-Za-z0-9_.\-]+)(\s*=\s*)("[^"]*"|'[^']*'|[^\s&;,"')=][^\s&;,"')]*)"#)
});
static MEMBER: LazyLock<Regex> =
    LazyLock::new(|| regex(r#""([A-Za-z0-9_.\-]+)"(\s*:\s*)("(?:[^"\\]|\\.)*"|[0-9.]+)"#));
static FLAG: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(--?)([A-Za-z][A-Za-z0-9_\-]*)(\s+)("[^"]*"|'[^']*'|\S+)"#));
static SCHEME: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\b(bearer|basic|token|apikey|negotiate|digest)(\s+)([A-Za-z0-9+/_.~=\-]{4,})")
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns of this file are tested")
}

pub(super) fn masked(text: &str, mask: &str) -> String {
    if text.contains(BLOCK) {
        return mask.to_owned();
    }
    let named = |name: &str, whole: &str, masked_text: String| {
        if names::is_secret(name) {
            masked_text
        } else {
            whole.to_owned()
        }
    };
    let mut text = TOKEN.replace_all(text, mask).into_owned();
    text = replaced(&HOOK, &text, |found| format!("{}{mask}", &found[1]));
    if text.contains("://") {
        text = replaced(&URL_PASSWORD, &text, |found| {
            format!("{}:{mask}@", &found[1])
        });
        text = replaced(&URL_TOKEN, &text, |found| format!("{}{mask}@", &found[1]));
    } else {
        text = replaced(&DRIVER_PASSWORD, &text, |found| {
            format!("{}:{mask}@{}", &found[1], &found[3])
        });
        text = replaced(&BARE_PASSWORD, &text, |found| {
            if ADDRESSES.contains(&&found[1]) {
                return found[0].to_owned();
            }
            format!("{}:{mask}@{}", &found[1], &found[3])
        });
    }
    text = replaced(&USER_FLAG, &text, |found| {
        format!("{}{}{}:{mask}", &found[1], &found[2], &found[3])
    });
    text = replaced(&HEADER, &text, |found| {
        let masked_text = format!("{}{}{}{mask}", &found[1], &found[2], &found[3]);
        named(&found[2], &found[0], masked_text)
    });
    text = replaced(&ASSIGNED, &text, |found| {
        named(
            &found[1],
            &found[0],
            format!("{}{}{mask}", &found[1], &found[2]),
        )
    });
    text = replaced(&MEMBER, &text, |found| {
        named(
            &found[1],
            &found[0],
            format!("\"{}\"{}\"{mask}\"", &found[1], &found[2]),
        )
    });
    text = replaced(&FLAG, &text, |found| {
        let masked_text = format!("{}{}{}{mask}", &found[1], &found[2], &found[3]);
        named(&found[2], &found[0], masked_text)
    });
    replaced(&SCHEME, &text, |found| {
        let (scheme, value) = (&found[1], &found[3]);
        let is_credential = scheme.eq_ignore_ascii_case("bearer")
            || value.len() >= CREDENTIAL_CHARS_MIN
            || value.contains(|c: char| c.is_ascii_digit() || c == '=');
        if is_credential {
            format!("{scheme}{}{mask}", &found[2])
        } else {
            found[0].to_owned()
        }
    })
}

/// Flags such as `--password`, whose value is the next argument.
pub(super) fn is_secret_flag(argument: &str) -> bool {
    let name = argument
        .strip_prefix('-')
        .map(|name| name.trim_start_matches('-'));
    name.is_some_and(|name| !name.contains(['=', ' ']) && names::is_secret(name))
}

fn replaced(pattern: &Regex, text: &str, by: impl Fn(&Captures<'_>) -> String) -> String {
    pattern.replace_all(text, by).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_text_is_hidden_and_the_rest_is_shown() {
        for (text, shown) in [
            (
                "postgres://ada:hunter2@db:5432/x",
                "postgres://ada:#@db:5432/x",
            ),
            ("redis://:hunter2@db", "redis://:#@db"),
            (
                "see https://a:p@h/x and amqp://b:q/r@i/y",
                "see https://a:#@h/x and amqp://b:#@i/y",
            ),
            ("https://u:p@ss@h/", "https://u:#@h/"),
            (
                "https://0123456789abcdef0123@git.example/x",
                "https://#@git.example/x",
            ),
            ("postgres://ada@db/x", "postgres://ada@db/x"),
            ("ada:hunter2@tcp(db:3306)/x", "ada:#@tcp(db:3306)/x"),
            ("ada:hunter2@db.local:5432", "ada:#@db.local:5432"),
            ("mailto:ada@example.com", "mailto:ada@example.com"),
            ("git@github.com:a/b", "git@github.com:a/b"),
            (
                "host=db user=ada password=hunter2 port=1",
                "host=db user=ada password=# port=1",
            ),
            ("Server=db;Pwd='a b';Port=1", "Server=db;Pwd=#;Port=1"),
            (
                "https://h/x?a=1&access_token=abc&b=2",
                "https://h/x?a=1&access_token=#&b=2",
            ),
            ("Authorization: Basic YTpi", "Authorization: #"),
            ("X-Api-Key: abc", "X-Api-Key: #"),
            ("Accept: text/html", "Accept: text/html"),
            ("Bearer abcd", "Bearer #"),
            ("Basic YWRhOmh1bnRlcjI=", "Basic #"),
            ("basic training", "basic training"),
            ("curl -u ada:hunter2 h", "curl -u ada:# h"),
            (
                "tool --password hunter2 --level 3",
                "tool --password # --level 3",
            ),
            (
                r#"{"password": "a\"b", "n": 1}"#,
                r##"{"password": "#", "n": 1}"##,
            ),
            (
                "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----",
                "#",
            ),
            ("id AKIAIOSFODNN7EXAMPLE.", "id #."),
            ("ghp_0123456789abcdef0123456789abcdef0123", "#"),
            ("sk_live_0123456789abcdef", "#"),
            ("xoxb-1234-5678-abcdef", "#"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def", "#"),
            (
                "https://hooks.slack.com/services/T0/B0/xyz",
                "https://hooks.slack.com/#",
            ),
            ("ck_0123456789abcdef0123456789abcdef01234567", "#"),
            ("https://example.com/a?b=c#d", "https://example.com/a?b=c#d"),
            (
                "a plain sentence: with signs, 1 = 1 & more",
                "a plain sentence: with signs, 1 = 1 & more",
            ),
            (
                "payload.token == 'a' and payload.n = 2",
                "payload.token == 'a' and payload.n = 2",
            ),
            ("", ""),
        ] {
            let masked_text = masked(text, "#");
            let shown = shown.replace("hooks.slack.com/#", "hooks.slack.com/services/#");
            assert_eq!(masked_text, shown, "{text}");
            assert_eq!(
                masked(&masked_text, "#"),
                masked_text,
                "twice is the same: {text}"
            );
        }
    }
}
