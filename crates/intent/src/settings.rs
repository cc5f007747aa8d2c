//! The protocol's environment variables, parsed as its RFC defines.
//!
//! Invariant: a pure function of the given variables. Nothing here reads the environment, so every rule can be tested
//! with plain values. Every value is within its range, or is refused by name.

use std::path::PathBuf;

use consign_web::credentials::SECRET_CHARS_MIN;
use consign_web::listener_policy::ListenerPolicy;
use consign_web::operator::AUDIT_RETENTION_DAYS_DEFAULT;
use consign_web::secret_text::SecretText;

/// The default key of development setups of other servers, which is publicly known.
const WELL_KNOWN_SECRET: &str = "dev_secret";

const AUDIT_RETENTION_DAYS: &str = "CONSIGN_AUDIT_RETENTION_DAYS";
const AUDIT_RETENTION_DAYS_MAX: u32 = 3_650;

const CLEANUP_INTERVAL_S_DEFAULT: u64 = 21_600;
pub const CLEANUP_INTERVAL_S_MIN: u64 = 300;
pub const CLEANUP_INTERVAL_S_MAX: u64 = 86_400;

/// The parsed variables.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the RFC names four independent switches"
)]
pub struct IntentSettings {
    pub bus_secret: Option<SecretText>,
    pub admin_secret: Option<SecretText>,
    pub dashboard_password: Option<SecretText>,
    pub metrics_token: Option<SecretText>,
    pub db_path: Option<PathBuf>,
    pub trust_proxy: bool,
    pub enforce_https: bool,
    pub require_signatures: bool,
    pub maintenance_mode: bool,
    pub cleanup_interval_s: u64,
    pub audit_retention_days: u32,
}

/// Why a variable cannot be used, and what to do. The value is never included, because it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {why}")]
pub struct InvalidVariable {
    pub name: &'static str,
    pub why: &'static str,
    pub advice: String,
}

impl IntentSettings {
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, InvalidVariable> {
        // In container files an empty variable means that it is not set.
        let filled = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let secret =
            |name: &'static str| filled(name).map(|value| sendable(name, value)).transpose();
        let switch = |name: &str| {
            lookup(name).is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        };
        Ok(Self {
            bus_secret: bus_secret(lookup("BUS_SECRET"))?,
            admin_secret: secret("BUS_ADMIN_SECRET")?,
            dashboard_password: secret("DASHBOARD_PASSWORD")?,
            metrics_token: secret("BUS_METRICS_TOKEN")?,
            db_path: filled("BUS_DB_PATH").map(PathBuf::from),
            trust_proxy: switch("BUS_TRUST_PROXY"),
            enforce_https: switch("BUS_ENFORCE_HTTPS"),
            require_signatures: switch("BUS_REQUIRE_SIGNATURES"),
            maintenance_mode: switch("BUS_MAINTENANCE_MODE"),
            cleanup_interval_s: cleanup_interval_s(filled("BUS_CLEANUP_INTERVAL_SECONDS")),
            audit_retention_days: audit_retention_days(filled(AUDIT_RETENTION_DAYS))?,
        })
    }

    /// The settings that apply to all faces of the listener.
    pub const fn policy(&self) -> ListenerPolicy {
        ListenerPolicy {
            trust_proxy: self.trust_proxy,
            enforce_https: self.enforce_https,
            maintenance: self.maintenance_mode,
        }
    }
}

/// The main key. If it is unset, the first start creates one; a bad one is refused.
fn bus_secret(given: Option<String>) -> Result<Option<SecretText>, InvalidVariable> {
    let Some(given) = given else { return Ok(None) };
    let why = match given.trim() {
        "" => "is set but empty",
        WELL_KNOWN_SECRET => "is the well-known dev_secret",
        _ => return sendable("BUS_SECRET", given).map(Some),
    };
    Err(InvalidVariable {
        name: "BUS_SECRET",
        why,
        advice: "set BUS_SECRET to a long random text, or unset it to have one made".to_owned(),
    })
}

/// A secret that an HTTP header can carry. Any other secret could never be presented.
fn sendable(name: &'static str, given: String) -> Result<SecretText, InvalidVariable> {
    let why = if given.trim() != given {
        "begins or ends with white space"
    } else if !given.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        "has a character that no HTTP header can carry"
    } else if given.len() < SECRET_CHARS_MIN {
        let advice = format!("set {name} to a long random text, or unset it to have one made");
        let why = "is shorter than 16 characters, so it can be guessed";
        return Err(InvalidVariable { name, why, advice });
    } else {
        return Ok(SecretText::new(given));
    };
    let advice = format!(
        "set {name} to printable ASCII characters; a line break at its end may come from the file it was read from"
    );
    Err(InvalidVariable { name, why, advice })
}

fn audit_retention_days(given: Option<String>) -> Result<u32, InvalidVariable> {
    let Some(given) = given else {
        return Ok(AUDIT_RETENTION_DAYS_DEFAULT);
    };
    let days = given.trim().parse().ok();
    let days = days.filter(|days| (1..=AUDIT_RETENTION_DAYS_MAX).contains(days));
    days.ok_or_else(|| InvalidVariable {
        name: AUDIT_RETENTION_DAYS,
        why: "is not a number of days from 1 to 3650",
        advice: format!("unset {AUDIT_RETENTION_DAYS} to keep the audit log for {AUDIT_RETENTION_DAYS_DEFAULT} days"),
    })
}

fn cleanup_interval_s(given: Option<String>) -> u64 {
    let Some(given) = given else {
        return CLEANUP_INTERVAL_S_DEFAULT;
    };
    let given = given.trim();
    let digits = given.strip_prefix(['+', '-']).unwrap_or(given);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return CLEANUP_INTERVAL_S_DEFAULT;
    }
    if given.starts_with('-') {
        return CLEANUP_INTERVAL_S_MIN;
    }
    // Digits that do not fit into 64 bits exceed the upper bound.
    let asked = digits.parse().unwrap_or(u64::MAX);
    asked.clamp(CLEANUP_INTERVAL_S_MIN, CLEANUP_INTERVAL_S_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<IntentSettings, InvalidVariable> {
        IntentSettings::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_audit_log_is_kept_for_a_number_of_days() {
        let days = |value| {
            let settings = read(&[("CONSIGN_AUDIT_RETENTION_DAYS", value)]);
            settings.map(|settings| settings.audit_retention_days)
        };
        assert_eq!(days("").unwrap(), 90);
        assert_eq!(days(" 365 ").unwrap(), 365);
        for wrong in ["0", "3651", "-1", "a year"] {
            assert_eq!(
                days(wrong).unwrap_err().name,
                "CONSIGN_AUDIT_RETENTION_DAYS"
            );
        }
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        let settings = read(&[]).unwrap();
        assert!(settings.bus_secret.is_none() && settings.db_path.is_none());
        assert!(!settings.trust_proxy && !settings.enforce_https);
        assert!(!settings.require_signatures && !settings.maintenance_mode);
        assert_eq!(settings.cleanup_interval_s, 21_600);
    }

    #[test]
    fn ip_168_bus_secret_is_the_main_key() {
        let settings = read(&[("BUS_SECRET", "long and very random")]).unwrap();
        let secret = settings.bus_secret.unwrap();
        assert_eq!(secret.reveal(), "long and very random");
    }

    #[test]
    fn ip_170_to_172_switches_are_on_for_the_word_true_alone() {
        for (value, expected) in [
            ("true", true),
            ("TRUE", true),
            ("True", true),
            ("1", false),
            ("yes", false),
            ("on", false),
            ("", false),
            ("truethy", false),
        ] {
            let settings = read(&[
                ("BUS_TRUST_PROXY", value),
                ("BUS_ENFORCE_HTTPS", value),
                ("BUS_MAINTENANCE_MODE", value),
                ("BUS_REQUIRE_SIGNATURES", value),
            ])
            .unwrap();
            assert_eq!(settings.trust_proxy, expected, "{value}");
            assert_eq!(settings.enforce_https, expected, "{value}");
            assert_eq!(settings.maintenance_mode, expected, "{value}");
            assert_eq!(settings.require_signatures, expected, "{value}");
        }
    }

    #[test]
    fn ip_173_cleanup_interval_is_clamped_and_nonsense_is_the_default() {
        for (value, expected) in [
            ("600", 600),
            (" 600 ", 600),
            ("+600", 600),
            ("300", 300),
            ("299", 300),
            ("0", 300),
            ("-5", 300),
            ("86400", 86_400),
            ("86401", 86_400),
            ("99999999999999999999999", 86_400),
            ("ten", 21_600),
            ("1e3", 21_600),
            ("60.5", 21_600),
            ("-", 21_600),
            ("", 21_600),
        ] {
            let settings = read(&[("BUS_CLEANUP_INTERVAL_SECONDS", value)]).unwrap();
            assert_eq!(settings.cleanup_interval_s, expected, "{value}");
        }
    }

    #[test]
    fn ip_174_an_empty_or_well_known_main_key_is_refused_by_name() {
        for value in ["", "  ", "dev_secret", " dev_secret\n"] {
            let error = read(&[("BUS_SECRET", value)]).unwrap_err().to_string();
            assert!(error.starts_with("BUS_SECRET is "), "{error}");
        }
    }

    #[test]
    fn ip_073_empty_admin_credentials_count_as_unset() {
        let settings = read(&[("BUS_ADMIN_SECRET", ""), ("DASHBOARD_PASSWORD", "  ")]).unwrap();
        assert!(settings.admin_secret.is_none() && settings.dashboard_password.is_none());
    }

    #[test]
    fn a_secret_that_no_header_can_carry_is_refused_by_name() {
        for name in [
            "BUS_SECRET",
            "BUS_ADMIN_SECRET",
            "DASHBOARD_PASSWORD",
            "BUS_METRICS_TOKEN",
        ] {
            for (value, why) in [
                ("hidden\n", "begins or ends with white space"),
                (" hidden", "begins or ends with white space"),
                ("hid\nden", "has a character that no HTTP header can carry"),
                ("hid\tden", "has a character that no HTTP header can carry"),
                (
                    "hid\u{7f}den",
                    "has a character that no HTTP header can carry",
                ),
                ("hiddén", "has a character that no HTTP header can carry"),
            ] {
                let refused = read(&[(name, value)]).unwrap_err();
                assert_eq!(refused.to_string(), format!("{name} {why}"));
                assert!(!format!("{refused:?}").contains("hid"), "{refused:?}");
            }
            assert!(read(&[(name, "all ~printable! ASCII")]).is_ok());
        }
    }

    #[test]
    fn s14_a_chosen_secret_below_sixteen_characters_is_refused_by_name() {
        for name in [
            "BUS_SECRET",
            "BUS_ADMIN_SECRET",
            "DASHBOARD_PASSWORD",
            "BUS_METRICS_TOKEN",
        ] {
            let refused = read(&[(name, "fifteen-chars-x")]).unwrap_err();
            assert!(refused.to_string().starts_with(name), "{refused}");
            assert!(refused.advice.contains("unset it"), "{}", refused.advice);
            assert!(read(&[(name, "sixteen-chars-xy")]).is_ok());
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = read(&[
            ("BUS_SECRET", "hidden-1-0123456"),
            ("BUS_METRICS_TOKEN", "hidden-2-0123456"),
        ])
        .unwrap();
        assert!(!format!("{settings:?}").contains("hidden-"));
    }
}
