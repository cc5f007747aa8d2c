//! The variables of a site, read from a lookup function.
//!
//! Invariant: a variable that is set is usable, or the error names it; no error contains a secret.

use std::borrow::Cow;
use std::time::Duration;

use consign_transactions::document::AtpPublicKey;
use consign_transactions::site::AgentKeys;
use consign_web::secret_text::SecretText;

use crate::failure::Failure;

/// The settings of a site. Without `ATP_SITE` there is no site.
#[derive(Debug)]
pub(crate) struct SiteSettings {
    pub(crate) site: String,
    pub(crate) agent_keys: AgentKeys,
    pub(crate) rail: RailSetting,
    pub(crate) stripe_base: Option<String>,
    pub(crate) stripe_secret: Option<SecretText>,
    /// Two secrets during a rotation, separated by a comma.
    pub(crate) stripe_webhook_secrets: Vec<SecretText>,
    pub(crate) http_base: Option<String>,
    pub(crate) http_secret: Option<SecretText>,
    pub(crate) worker_goal: Option<String>,
    pub(crate) sweep: Duration,
    pub(crate) execute_wait: Duration,
    pub(crate) settle_delay: Duration,
    /// The time limit for one operation of a rail.
    pub(crate) rail_timeout: Duration,
    pub(crate) dedup_window_s: u32,
    /// By default, every rail except null requires signed requests.
    pub(crate) signed_requests: bool,
    /// Further host names of the site.
    pub(crate) hosts: Vec<String>,
    pub(crate) public_per_minute: u32,
    pub(crate) writes_per_minute: u32,
    pub(crate) write_bytes_per_minute: u32,
    /// Limits on stored intents without consent: per key or user, and in total.
    pub(crate) open_per_key: u32,
    pub(crate) open_max: u32,
    /// The secret of the compatibility profile's tokens; none if the profile is off.
    pub(crate) compat_secret: Option<SecretText>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RailSetting {
    Null,
    Stripe,
    Worker,
    Http,
}

/// Why a variable cannot be used, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnusableSetting {
    pub(crate) name: &'static str,
    pub(crate) why: Cow<'static, str>,
    pub(crate) advice: &'static str,
}

impl From<UnusableSetting> for Failure {
    fn from(unusable: UnusableSetting) -> Self {
        let UnusableSetting { name, why, advice } = unusable;
        Self::usage(format!("{name} {why}")).hint(advice)
    }
}

/// The names of all variables.
pub(crate) const NAMES: [&str; 24] = [
    "ATP_AGENT_KEYS",
    "ATP_COMPAT",
    "ATP_COMPAT_SECRET",
    "ATP_DEDUP_WINDOW_SECONDS",
    "ATP_EXECUTE_WAIT_SECONDS",
    "ATP_HOSTS",
    "ATP_HTTP_BASE",
    "ATP_HTTP_SECRET",
    "ATP_OPEN_MAX",
    "ATP_OPEN_PER_KEY",
    "ATP_PUBLIC_PER_MINUTE",
    "ATP_RAIL",
    "ATP_RAIL_TIMEOUT_SECONDS",
    LISTED,
    "ATP_SETTLE_DELAY_SECONDS",
    "ATP_SIGNED_REQUESTS",
    "ATP_SITE",
    "ATP_STRIPE_BASE",
    "ATP_STRIPE_SECRET",
    "ATP_STRIPE_WEBHOOK_SECRET",
    "ATP_SWEEP_SECONDS",
    "ATP_WORKER_GOAL",
    "ATP_WRITES_PER_MINUTE",
    "ATP_WRITE_BYTES_PER_MINUTE",
];
/// The list variable, which a file may spread over several lines.
pub(crate) const LISTED: &str = "ATP_REGISTERED_KEYS";

const SWEEP_S_DEFAULT: f64 = 60.0;
const RAIL_TIMEOUT_S_DEFAULT: f64 = 10.0;
const RAIL_TIMEOUT_MAX: Duration = Duration::from_secs(20);
const PUBLIC_PER_MINUTE_DEFAULT: u32 = 120;
/// Many agents may share an address, as do all callbacks of a rail.
const WRITES_PER_MINUTE_DEFAULT: u32 = 6_000;
/// Seven hundred bytes per request, the size of an intent. An address can send 240 MiB per hour.
const WRITE_BYTES_PER_MINUTE_DEFAULT: u32 = 4 << 20;
const OPEN_PER_KEY_DEFAULT: u32 = 1_000;
const OPEN_MAX_DEFAULT: u32 = 100_000;
/// The length of the hash's output; a shorter secret would weaken it.
const COMPAT_SECRET_BYTES_MIN: usize = 32;

impl SiteSettings {
    /// `None` if no site is named.
    pub(crate) fn read(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, UnusableSetting> {
        let filled = |name: &str| {
            let value = lookup(name).map(|value| value.trim().to_owned());
            value.filter(|value| !value.is_empty())
        };
        let Some(site) = filled("ATP_SITE") else {
            return Ok(None);
        };
        let secret = |name: &str| filled(name).map(SecretText::new);
        let settings = Self {
            site: origin(site)?,
            agent_keys: agent_keys(
                filled("ATP_AGENT_KEYS").as_deref(),
                filled(LISTED).as_deref(),
            )?,
            rail: rail(filled("ATP_RAIL").as_deref())?,
            stripe_base: filled("ATP_STRIPE_BASE"),
            stripe_secret: secret("ATP_STRIPE_SECRET"),
            stripe_webhook_secrets: filled("ATP_STRIPE_WEBHOOK_SECRET")
                .map(|both| {
                    both.split(',')
                        .map(|one| SecretText::new(one.trim().to_owned()))
                        .collect()
                })
                .unwrap_or_default(),
            http_base: filled("ATP_HTTP_BASE"),
            http_secret: secret("ATP_HTTP_SECRET"),
            worker_goal: filled("ATP_WORKER_GOAL").map(worker_goal).transpose()?,
            sweep: seconds(
                "ATP_SWEEP_SECONDS",
                filled("ATP_SWEEP_SECONDS"),
                SWEEP_S_DEFAULT,
            )?,
            execute_wait: seconds(
                "ATP_EXECUTE_WAIT_SECONDS",
                filled("ATP_EXECUTE_WAIT_SECONDS"),
                10.0,
            )?,
            settle_delay: seconds(
                "ATP_SETTLE_DELAY_SECONDS",
                filled("ATP_SETTLE_DELAY_SECONDS"),
                30.0,
            )?,
            rail_timeout: rail_timeout(filled("ATP_RAIL_TIMEOUT_SECONDS"))?,
            dedup_window_s: whole(
                "ATP_DEDUP_WINDOW_SECONDS",
                filled("ATP_DEDUP_WINDOW_SECONDS"),
                0,
            )?,
            signed_requests: match filled("ATP_SIGNED_REQUESTS") {
                Some(word) => switch("ATP_SIGNED_REQUESTS", Some(&word))?,
                None => rail(filled("ATP_RAIL").as_deref())? != RailSetting::Null,
            },
            hosts: hosts(filled("ATP_HOSTS").as_deref())?,
            public_per_minute: whole(
                "ATP_PUBLIC_PER_MINUTE",
                filled("ATP_PUBLIC_PER_MINUTE"),
                PUBLIC_PER_MINUTE_DEFAULT,
            )?,
            writes_per_minute: whole(
                "ATP_WRITES_PER_MINUTE",
                filled("ATP_WRITES_PER_MINUTE"),
                WRITES_PER_MINUTE_DEFAULT,
            )?,
            write_bytes_per_minute: whole(
                "ATP_WRITE_BYTES_PER_MINUTE",
                filled("ATP_WRITE_BYTES_PER_MINUTE"),
                WRITE_BYTES_PER_MINUTE_DEFAULT,
            )?,
            open_per_key: whole(
                "ATP_OPEN_PER_KEY",
                filled("ATP_OPEN_PER_KEY"),
                OPEN_PER_KEY_DEFAULT,
            )?,
            open_max: whole("ATP_OPEN_MAX", filled("ATP_OPEN_MAX"), OPEN_MAX_DEFAULT)?,
            compat_secret: compat_secret(
                switch("ATP_COMPAT", filled("ATP_COMPAT").as_deref())?,
                filled("ATP_COMPAT_SECRET"),
            )?,
        };
        Ok(Some(settings))
    }
}

/// Scheme, host and an optional port: the value that intents name as their site, byte for byte.
fn origin(site: String) -> Result<String, UnusableSetting> {
    let rest = site
        .strip_prefix("https://")
        .or_else(|| site.strip_prefix("http://"));
    let is_origin = rest.is_some_and(|host| {
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\".contains(&byte);
        !host.is_empty() && host.bytes().all(plain)
    });
    if is_origin {
        return Ok(site);
    }
    Err(UnusableSetting {
        name: "ATP_SITE",
        why: "is not an origin".into(),
        advice: "use a form like https://shop.example, without a path and without a final slash",
    })
}

/// Host names only: a port is neither secret nor proof.
fn hosts(names: Option<&str>) -> Result<Vec<String>, UnusableSetting> {
    let names = names.unwrap_or_default().split(',').map(str::trim);
    let names: Vec<String> = names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if names.iter().all(|name| name.bytes().all(plain)) {
        return Ok(names);
    }
    Err(UnusableSetting {
        name: "ATP_HOSTS",
        why: "contains an invalid host name".into(),
        advice: "use names like consign.internal, without scheme and port, separated by commas",
    })
}

fn agent_keys(word: Option<&str>, keys: Option<&str>) -> Result<AgentKeys, UnusableSetting> {
    match (word, keys) {
        (None | Some("open"), None) => Ok(AgentKeys::Open),
        (Some("registered"), Some(keys)) => {
            let keys = keys.split([',', '\n']).map(str::trim);
            let ids = keys.filter(|key| !key.is_empty()).map(key_id);
            ids.collect::<Result<_, _>>().map(AgentKeys::Registered)
        }
        (Some("registered"), None) => Err(UnusableSetting {
            name: LISTED,
            why: "is not set, so no agent would be accepted".into(),
            advice: "list the agents' public keys, like ed25519:BASE64, separated by commas",
        }),
        _ => Err(UnusableSetting {
            name: "ATP_AGENT_KEYS",
            why: "is neither open nor registered, or keys are listed and it is not registered"
                .into(),
            advice: "set it to registered and list keys in ATP_REGISTERED_KEYS; or set it to open and list none, which accepts every key",
        }),
    }
}

/// The id of a public key as documents write it.
fn key_id(text: &str) -> Result<String, UnusableSetting> {
    let key = AtpPublicKey::parse(text).ok_or_else(|| UnusableSetting {
        name: LISTED,
        why: format!("has {text}, which is not a public key").into(),
        advice: "write each key as ed25519: and the base64 of its 32 bytes",
    });
    key.map(|key| key.id().to_owned())
}

/// The secret may be set while the profile is off.
fn compat_secret(
    is_on: bool,
    secret: Option<String>,
) -> Result<Option<SecretText>, UnusableSetting> {
    match secret {
        _ if !is_on => Ok(None),
        Some(secret) if secret.len() >= COMPAT_SECRET_BYTES_MIN => {
            Ok(Some(SecretText::new(secret)))
        }
        _ => Err(UnusableSetting {
            name: "ATP_COMPAT_SECRET",
            why: "is not set or shorter than 32 bytes, and ATP_COMPAT is on".into(),
            advice: "set it to the secret with which the tokens of its users are signed (HS256), or leave ATP_COMPAT off",
        }),
    }
}

/// The suffix of the goal distinguishes refunds from effects.
fn worker_goal(goal: String) -> Result<String, UnusableSetting> {
    if !goal.ends_with(".refund") {
        return Ok(goal);
    }
    Err(UnusableSetting {
        name: "ATP_WORKER_GOAL",
        why: "ends in .refund".into(),
        advice: "refunds use this goal with the suffix .refund; choose another goal",
    })
}

fn rail(word: Option<&str>) -> Result<RailSetting, UnusableSetting> {
    match word {
        None | Some("null") => Ok(RailSetting::Null),
        Some("stripe") => Ok(RailSetting::Stripe),
        Some("worker") => Ok(RailSetting::Worker),
        Some("http") => Ok(RailSetting::Http),
        Some(_) => Err(UnusableSetting {
            name: "ATP_RAIL",
            why: "is not a rail".into(),
            advice: "use stripe, worker, http or null",
        }),
    }
}

fn seconds(
    name: &'static str,
    text: Option<String>,
    default: f64,
) -> Result<Duration, UnusableSetting> {
    let parsed = text.map_or(Ok(default), |text| text.parse());
    let usable = parsed.ok().filter(|s: &f64| (0.05..=86_400.0).contains(s));
    usable.map(Duration::from_secs_f64).ok_or(UnusableSetting {
        name,
        why: "is not a number of seconds from 0.05 to 86400".into(),
        advice: "use a form like 60 or 0.5",
    })
}

/// A lease lasts a minute, in which a rail may be called several times.
fn rail_timeout(text: Option<String>) -> Result<Duration, UnusableSetting> {
    const NAME: &str = "ATP_RAIL_TIMEOUT_SECONDS";
    let timeout = seconds(NAME, text, RAIL_TIMEOUT_S_DEFAULT)?;
    if timeout <= RAIL_TIMEOUT_MAX {
        return Ok(timeout);
    }
    Err(UnusableSetting {
        name: NAME,
        why: "is more than 20".into(),
        advice: "a slower rail should answer by callback; the sweep checks again too",
    })
}

/// Any other word is refused: `yes` must not silently mean off.
fn switch(name: &'static str, word: Option<&str>) -> Result<bool, UnusableSetting> {
    match word {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(UnusableSetting {
            name,
            why: "is neither true nor false".into(),
            advice: "use true or false, or remove it for the default",
        }),
    }
}

fn whole(name: &'static str, text: Option<String>, default: u32) -> Result<u32, UnusableSetting> {
    let parsed = text.map_or(Ok(default), |text| text.parse());
    parsed.map_err(|_| UnusableSetting {
        name,
        why: "is not a whole number".into(),
        advice: "use a form like 60; 0 disables it",
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<SiteSettings>, UnusableSetting> {
        SiteSettings::read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_variable_is_among_the_names() {
        let asked = RefCell::new(BTreeSet::new());
        let settings = SiteSettings::read(|name| {
            asked.borrow_mut().insert(name.to_owned());
            (name == "ATP_SITE").then(|| "https://shop.example".to_owned())
        });
        assert!(settings.unwrap().is_some());
        assert_eq!(asked.into_inner(), NAMES.map(str::to_owned).into());
    }

    #[test]
    fn without_a_site_there_is_no_face() {
        assert!(read(&[("ATP_RAIL", "null")]).unwrap().is_none());
    }

    #[test]
    fn at_066_the_sweep_is_a_minute_unless_told() {
        let site = ("ATP_SITE", "https://shop.example");
        let settings = read(&[site]).unwrap().unwrap();
        assert_eq!(settings.sweep, Duration::from_mins(1));
        assert_eq!(settings.rail, RailSetting::Null);
        assert_eq!(settings.agent_keys, AgentKeys::Open);
        let settings = read(&[site, ("ATP_SWEEP_SECONDS", "0.5")]);
        assert_eq!(settings.unwrap().unwrap().sweep, Duration::from_millis(500));
    }

    #[test]
    fn requests_are_signed_unless_the_rail_does_nothing_or_somebody_chose() {
        let signed = |pairs: &[(&str, &str)]| {
            let site = ("ATP_SITE", "https://shop.example");
            let settings = read(&[&[site], pairs].concat()).unwrap().unwrap();
            settings.signed_requests
        };
        assert!(!signed(&[]));
        assert!(!signed(&[("ATP_RAIL", "null")]));
        assert!(signed(&[("ATP_SIGNED_REQUESTS", "true")]));
        for rail in ["stripe", "worker", "http"] {
            let rail = ("ATP_RAIL", rail);
            assert!(signed(&[rail]), "{rail:?}");
            assert!(signed(&[rail, ("ATP_SIGNED_REQUESTS", "  ")]), "{rail:?}");
            assert!(!signed(&[rail, ("ATP_SIGNED_REQUESTS", "false")]));
        }
    }

    #[test]
    fn further_names_of_the_site_are_a_list() {
        let site = ("ATP_SITE", "https://shop.example");
        let settings = read(&[site, ("ATP_HOSTS", "a.example, consign ,")]);
        let hosts = settings.unwrap().unwrap().hosts;
        assert_eq!(hosts, ["a.example", "consign"]);
    }

    #[test]
    fn a_goal_of_effects_is_none_of_refunds() {
        let site = ("ATP_SITE", "https://shop.example");
        let settings = read(&[site, ("ATP_WORKER_GOAL", "shop.pay")]);
        let goal = settings.unwrap().unwrap().worker_goal;
        assert_eq!(goal.as_deref(), Some("shop.pay"));
        let refused = read(&[site, ("ATP_WORKER_GOAL", "shop.refund")]).unwrap_err();
        assert_eq!(refused.name, "ATP_WORKER_GOAL");
    }

    #[test]
    fn at_104_the_compatibility_profile_is_off_unless_told() {
        let site = ("ATP_SITE", "https://shop.example");
        let secret = ("ATP_COMPAT_SECRET", "0123456789abcdef0123456789abcdef");
        for off in [vec![site, secret], vec![site, ("ATP_COMPAT", "false")]] {
            assert!(read(&off).unwrap().unwrap().compat_secret.is_none());
        }
        let on = read(&[site, secret, ("ATP_COMPAT", "true")]);
        assert!(on.unwrap().unwrap().compat_secret.is_some());
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let site = ("ATP_SITE", "https://shop.example");
        for (pairs, name) in [
            (vec![("ATP_SITE", "https://shop.example/")], "ATP_SITE"),
            (vec![("ATP_SITE", "shop.example")], "ATP_SITE"),
            (vec![site, ("ATP_RAIL", "gold")], "ATP_RAIL"),
            (vec![site, ("ATP_AGENT_KEYS", "all")], "ATP_AGENT_KEYS"),
            (
                vec![site, ("ATP_AGENT_KEYS", "registered")],
                "ATP_REGISTERED_KEYS",
            ),
            (
                vec![site, ("ATP_REGISTERED_KEYS", "ed25519:x")],
                "ATP_AGENT_KEYS",
            ),
            (
                vec![
                    site,
                    ("ATP_AGENT_KEYS", "registered"),
                    ("ATP_REGISTERED_KEYS", "ed25519:x"),
                ],
                "ATP_REGISTERED_KEYS",
            ),
            (
                vec![site, ("ATP_SWEEP_SECONDS", "soon")],
                "ATP_SWEEP_SECONDS",
            ),
            (vec![site, ("ATP_SWEEP_SECONDS", "-1")], "ATP_SWEEP_SECONDS"),
            (
                vec![site, ("ATP_SIGNED_REQUESTS", "yes")],
                "ATP_SIGNED_REQUESTS",
            ),
            (
                vec![site, ("ATP_RAIL_TIMEOUT_SECONDS", "21")],
                "ATP_RAIL_TIMEOUT_SECONDS",
            ),
            (vec![site, ("ATP_HOSTS", "a.example,b:80")], "ATP_HOSTS"),
            (vec![site, ("ATP_HOSTS", "https://a.example")], "ATP_HOSTS"),
            (vec![site, ("ATP_COMPAT", "yes")], "ATP_COMPAT"),
            (vec![site, ("ATP_COMPAT", "true")], "ATP_COMPAT_SECRET"),
            (
                vec![
                    site,
                    ("ATP_COMPAT", "true"),
                    ("ATP_COMPAT_SECRET", "too short"),
                ],
                "ATP_COMPAT_SECRET",
            ),
        ] {
            assert_eq!(read(&pairs).unwrap_err().name, name);
        }
    }
}
