//! The variables of the protocol: accepted values are within their documented range, and no secret is ever shown.
//!
//! Input: as in `/proc/PID/environ`, `NAME=value` with a zero byte after each.

use std::collections::HashMap;

use consign_intent::settings::{
    CLEANUP_INTERVAL_S_MAX, CLEANUP_INTERVAL_S_MIN, IntentSettings, InvalidVariable,
};
use consign_web::credentials::SECRET_CHARS_MIN;
use consign_web::secret_text::SecretText;
use http::HeaderValue;

const SECRETS: [&str; 4] = [
    "BUS_SECRET",
    "BUS_ADMIN_SECRET",
    "DASHBOARD_PASSWORD",
    "BUS_METRICS_TOKEN",
];
const AUDIT_DAYS: &str = "CONSIGN_AUDIT_RETENTION_DAYS";
const INTERVAL: &str = "BUS_CLEANUP_INTERVAL_SECONDS";
/// Inserted into every secret, to be searched in outputs.
const MARK: &str = "#hidden#";

type Variables = HashMap<String, String>;

pub(crate) fn run(bytes: &[u8]) {
    let variables = environment(bytes);
    match read(&variables) {
        Ok(settings) => accepted(&settings, &variables),
        Err(refused) => {
            let value = variables
                .get(refused.name)
                .expect("a variable that is not set is not refused");
            if refused.name == AUDIT_DAYS {
                let days = value.trim().parse::<u32>().ok();
                let fits = days.is_some_and(|days| (1..=3_650).contains(&days));
                assert!(!fits, "{refused} for {value:?}");
            } else {
                let main = refused.name == "BUS_SECRET";
                assert!(!usable(value, main), "{refused} for {value:?}");
            }
        }
    }
    nothing_is_shown(variables);
}

/// A value that is not text counts as unset, as for the server.
fn environment(bytes: &[u8]) -> Variables {
    let entries = bytes.split(|byte| *byte == 0);
    let pairs = entries.filter_map(|entry| str::from_utf8(entry).ok()?.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn read(variables: &Variables) -> Result<IntentSettings, InvalidVariable> {
    IntentSettings::read(|name| variables.get(name).cloned())
}

fn accepted(settings: &IntentSettings, variables: &Variables) {
    let found = [
        &settings.bus_secret,
        &settings.admin_secret,
        &settings.dashboard_password,
        &settings.metrics_token,
    ];
    for (name, found) in SECRETS.into_iter().zip(found) {
        // An empty main key is refused; an empty other secret counts as unset.
        let given = variables.get(name).map(String::as_str);
        let given = given.filter(|value| !value.trim().is_empty());
        let found = found.as_ref().map(SecretText::reveal);
        assert_eq!(found, given, "{name} was altered");
        if let Some(secret) = found {
            assert!(usable(secret, name == "BUS_SECRET"), "{name}: {secret:?}");
            assert!(HeaderValue::from_str(secret).is_ok(), "{name}: {secret:?}");
        }
    }
    for (name, on) in [
        ("BUS_TRUST_PROXY", settings.trust_proxy),
        ("BUS_ENFORCE_HTTPS", settings.enforce_https),
        ("BUS_REQUIRE_SIGNATURES", settings.require_signatures),
        ("BUS_MAINTENANCE_MODE", settings.maintenance_mode),
    ] {
        let word = variables.get(name).map(|value| value.trim().to_lowercase());
        assert_eq!(on, word.as_deref() == Some("true"), "{name}");
    }
    interval(settings.cleanup_interval_s, variables);
}

fn interval(found: u64, variables: &Variables) {
    let range = CLEANUP_INTERVAL_S_MIN..=CLEANUP_INTERVAL_S_MAX;
    assert!(range.contains(&found), "{found}");
    let asked = variables.get(INTERVAL);
    let asked = asked.and_then(|value| value.trim().parse::<u64>().ok());
    if let Some(asked) = asked.filter(|asked| range.contains(asked)) {
        assert_eq!(found, asked, "another interval than the one asked for");
    }
    let again = Variables::from([(INTERVAL.to_owned(), found.to_string())]);
    let again = read(&again).expect("an interval is never refused");
    assert_eq!(again.cleanup_interval_s, found, "not its own fixed point");
}

/// Whether a header can carry it, and it is long enough.
fn usable(secret: &str, main: bool) -> bool {
    let printable = secret.chars().all(|char| (' '..='~').contains(&char));
    let bare = !secret.is_empty() && !secret.starts_with(' ') && !secret.ends_with(' ');
    let long = secret.len() >= SECRET_CHARS_MIN;
    printable && bare && long && !(main && secret == "dev_secret")
}

/// Neither settings nor errors contain a secret.
fn nothing_is_shown(mut variables: Variables) {
    if variables.values().any(|value| value.contains(MARK)) {
        return;
    }
    for name in SECRETS {
        if let Some(value) = variables.get_mut(name) {
            let middle = value.floor_char_boundary(value.len() / 2);
            value.insert_str(middle, MARK);
        }
    }
    let shown = match read(&variables) {
        Ok(settings) => format!("{settings:?}"),
        Err(refused) => format!("{refused} {refused:?}"),
    };
    assert!(!shown.contains(MARK), "{shown}");
}
