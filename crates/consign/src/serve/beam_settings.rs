//! The variables of Beam, read from a lookup function.
//!
//! Invariant: a variable that is set is usable, or the error names it; no error contains a secret.

use std::path::Path;
use std::time::Duration;

use consign_beam::catalog::Catalog;
use consign_beam::keys::BeamPrivateKey;
use consign_beam::outbound::{AddressGuard, AllowedTargets, TargetUrl};
use consign_beam::settings::{BeamSettings, BusIdentity, Roles};
use consign_kernel::ids::SECOND_US;
use consign_web::credentials::SecretDigest;
use consign_web::secret_text::SecretText;
use serde::Deserialize;

use super::site_settings::UnusableSetting;

/// The largest file that a variable may name.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// A schedule that is scaled below this would retry without a pause.
const TIME_SCALE_MIN: f64 = 0.000_1;
const TIME_SCALE_MAX: f64 = 100.0;
const INTERVAL_MS_MIN: u64 = 10;
const INTERVAL_MS_MAX: u64 = 3_600_000;
const RATE_MAX: u64 = 100_000_000;

/// A bundle of identities, as the SDK exports them; the names of its members have no meaning.
#[derive(Deserialize)]
struct BundledIdentity {
    #[serde(rename = "beamId")]
    beam_id: String,
    #[serde(rename = "privateKeyBase64")]
    private_key: String,
}

/// `url` and `session_secret` apply where no variable is set.
pub(crate) fn read(
    lookup: impl Fn(&str) -> Option<String>,
    url: &str,
    session_secret: SecretText,
) -> Result<BeamSettings, UnusableSetting> {
    let filled = |name: &str| {
        let value = lookup(name).map(|value| value.trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let list = |name: &str| {
        let items = filled(name).unwrap_or_default();
        let items = items.split(',').map(|item| item.trim().to_lowercase());
        items.filter(|item| !item.is_empty()).collect::<Vec<_>>()
    };
    let is_on = |name: &str| filled(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    // The names that a process with several protocols can tell apart win over the generic ones.
    let of_bus = |own: &'static str, generic: &'static str| {
        filled(own)
            .map(|value| (own, value))
            .or_else(|| filled(generic).map(|value| (generic, value)))
    };

    let directory_url = match filled("BEAM_DIRECTORY_URL") {
        None => url.to_owned(),
        Some(value) => {
            TargetUrl::parse(&value).map_err(|error| UnusableSetting {
                name: "BEAM_DIRECTORY_URL",
                why: format!("is not a URL that can be called: {error}").into(),
                advice: "write the public address of this directory, such as https://directory.example",
            })?;
            value
        }
    };
    let secret = filled("JWT_SECRET").map_or(session_secret, SecretText::new);
    let mut settings = BeamSettings::new(directory_url.trim_end_matches('/').to_owned(), secret);
    settings.roles = Roles {
        admins: list("BEAM_ADMIN_EMAILS"),
        operators: list("BEAM_OPERATOR_EMAILS"),
        viewers: list("BEAM_VIEWER_EMAILS"),
    };
    settings.federation_secret = filled("BEAM_FEDERATION_SHARED_SECRET").map(SecretText::new);
    if let Some(number) = number(
        "BEAM_RATE_LIMIT_PER_MIN",
        filled("BEAM_RATE_LIMIT_PER_MIN"),
        1,
        RATE_MAX,
    )? {
        settings.rate_per_minute = u32::try_from(number).unwrap_or(u32::MAX);
    }
    settings.result_timeout = milliseconds("RELAY_TIMEOUT_MS", filled("RELAY_TIMEOUT_MS"))?;
    let sweep = "RELAY_RECOVERY_SWEEP_INTERVAL_MS";
    if let Some(sweep) = milliseconds(sweep, filled(sweep))? {
        settings.recovery_sweep = sweep;
    }
    let targets = filled("BEAM_ALLOW_TARGETS").unwrap_or_default();
    let targets = AllowedTargets::parse(&targets).map_err(|error| UnusableSetting {
        name: "BEAM_ALLOW_TARGETS",
        why: error.to_string().into(),
        advice: "write host:port, separated by commas, such as 127.0.0.1:8080,peer.internal:443",
    })?;
    settings.guard = AddressGuard::new(targets);
    settings.open = is_on("BEAM_OPEN");
    // The protocol's own word for this one is `on`.
    settings.public_limits = is_on("BEAM_PUBLIC_LIMITS")
        || filled("BEAM_PUBLIC_LIMITS").is_some_and(|value| value.eq_ignore_ascii_case("on"));
    let bytes = "BEAM_WRITE_BYTES_PER_MINUTE";
    if let Some(number) = number(bytes, filled(bytes), 0, u64::MAX)? {
        settings.write_bytes_per_minute = number;
    }
    let agents = "BEAM_AGENTS_MAX";
    if let Some(number) = number(agents, filled(agents), 0, u64::MAX)? {
        settings.agents_max = number;
    }
    settings.private = is_on("BEAM_PRIVATE_DIRECTORY");
    if let Some(path) = filled("BEAM_CATALOG_PATH") {
        let text = text_of("BEAM_CATALOG_PATH", &path)?;
        settings.catalog = Catalog::parse(&text).map_err(|error| UnusableSetting {
            name: "BEAM_CATALOG_PATH",
            why: format!("names a catalog that cannot be read: {error}").into(),
            advice: "compare it with the response of GET /intents/catalog",
        })?;
    }

    let bus = &mut settings.bus;
    bus.api_key = filled("BEAM_BUS_API_KEY").map(SecretDigest::new);
    bus.stats_public = is_on("BEAM_BUS_STATS_PUBLIC");
    bus.clean_test_data = is_on("BEAM_BUS_CLEAN_TEST_DATA");
    bus.allowed_origins = list("BEAM_BUS_ALLOWED_ORIGINS");
    if let Some((name, path)) = of_bus("BEAM_BUS_IDENTITY_PATH", "IDENTITY_PATH") {
        bus.identities = identities(name, &path)?;
    }
    if let Some((name, value)) = of_bus("BEAM_BUS_RATE_LIMIT", "RATE_LIMIT")
        && let Some(number) = number(name, Some(value), 1, RATE_MAX)?
    {
        bus.rate_per_minute = u32::try_from(number).unwrap_or(u32::MAX);
    }
    if let Some((name, value)) = of_bus("BEAM_BUS_DIRECTORY_URL", "DIRECTORY_URL") {
        let advice = "write the address of the directory, such as https://directory.example";
        TargetUrl::parse(&value).map_err(|error| UnusableSetting {
            name,
            why: format!("is not a URL that can be called: {error}").into(),
            advice,
        })?;
        bus.remote_directory = Some(value.trim_end_matches('/').to_owned());
    }
    if let Some((name, value)) = of_bus("BEAM_BUS_RETRY_INTERVAL_MS", "RETRY_INTERVAL_MS")
        && let Some(interval) = milliseconds(name, Some(value))?
    {
        bus.retry_interval = interval;
    }
    if let Some((name, value)) = of_bus("BEAM_BUS_RETRY_TIME_SCALE", "RETRY_TIME_SCALE") {
        bus.retry_second_us = scaled_second_us(name, &value)?;
    }
    Ok(settings)
}

pub(super) fn number(
    name: &'static str,
    value: Option<String>,
    least: u64,
    most: u64,
) -> Result<Option<u64>, UnusableSetting> {
    let Some(value) = value else { return Ok(None) };
    let number = value.parse().ok();
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(UnusableSetting {
            name,
            why: format!("is not a whole number from {least} to {most}").into(),
            advice: "correct it, or unset it for the default",
        }),
    }
}

fn milliseconds(
    name: &'static str,
    value: Option<String>,
) -> Result<Option<Duration>, UnusableSetting> {
    let number = number(name, value, INTERVAL_MS_MIN, INTERVAL_MS_MAX)?;
    Ok(number.map(Duration::from_millis))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the factor is bounded"
)]
fn scaled_second_us(name: &'static str, value: &str) -> Result<i64, UnusableSetting> {
    let factor = value.parse::<f64>().ok();
    match factor.filter(|factor| (TIME_SCALE_MIN..=TIME_SCALE_MAX).contains(factor)) {
        Some(factor) => Ok((SECOND_US as f64 * factor).round() as i64),
        None => Err(UnusableSetting {
            name,
            why: format!("is not a number from {TIME_SCALE_MIN} to {TIME_SCALE_MAX}").into(),
            advice: "unset it outside of tests",
        }),
    }
}

fn text_of(name: &'static str, path: &str) -> Result<String, UnusableSetting> {
    let unusable = |why: String| UnusableSetting {
        name,
        why: why.into(),
        advice: "name a readable file",
    };
    let size = std::fs::metadata(Path::new(path)).map(|file| file.len());
    match size {
        Ok(size) if size <= FILE_BYTES_MAX => {}
        Ok(_) => {
            return Err(unusable(format!(
                "names a file of more than {FILE_BYTES_MAX} bytes"
            )));
        }
        Err(error) => {
            return Err(unusable(format!(
                "names a file that cannot be read: {error}"
            )));
        }
    }
    std::fs::read_to_string(path)
        .map_err(|error| unusable(format!("names a file that cannot be read: {error}")))
}

fn identities(name: &'static str, path: &str) -> Result<Vec<BusIdentity>, UnusableSetting> {
    let unusable = |why: String| UnusableSetting {
        name,
        why: why.into(),
        advice: "write a JSON object with the exported identities as its members: beamId, publicKeyBase64, privateKeyBase64",
    };
    let text = SecretText::new(text_of(name, path)?);
    let bundle: std::collections::BTreeMap<String, BundledIdentity> =
        serde_json::from_str(text.reveal()).map_err(|error| {
            unusable(format!(
                "names a file that is no bundle of identities (line {})",
                error.line()
            ))
        })?;
    let mut identities = Vec::with_capacity(bundle.len());
    for (entry, identity) in bundle {
        let private_key = SecretText::new(identity.private_key);
        BeamPrivateKey::parse(private_key.reveal()).map_err(|error| {
            unusable(format!(
                "has a private key that cannot be used in `{entry}`: {error}"
            ))
        })?;
        identities.push(BusIdentity {
            beam_id: identity.beam_id,
            private_key,
        });
    }
    Ok(identities)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(variables: &[(&str, &str)]) -> Result<BeamSettings, UnusableSetting> {
        let lookup = |name: &str| {
            let mut pairs = variables.iter();
            pairs
                .find(|(given, _)| *given == name)
                .map(|(_, value)| (*value).to_owned())
        };
        read(
            lookup,
            "http://127.0.0.1:7070",
            SecretText::new("made".to_owned()),
        )
    }

    #[test]
    fn nothing_configured_is_the_protocols_default() {
        let settings = read_with(&[]).unwrap();
        assert_eq!(settings.directory_url, "http://127.0.0.1:7070");
        assert_eq!(settings.session_secret.reveal(), "made");
        assert_eq!(
            (settings.rate_per_minute, settings.bus.rate_per_minute),
            (60, 10)
        );
        assert_eq!(settings.http_result_timeout(), Duration::from_mins(1));
        assert_eq!(settings.socket_result_timeout(), Duration::from_secs(30));
        assert!(!settings.open && !settings.private && !settings.public_limits);
        assert!(settings.bus.api_key.is_none() && settings.federation_secret.is_none());
        assert_eq!(settings.bus.retry_second_us, SECOND_US);
        assert_eq!(
            (settings.write_bytes_per_minute, settings.agents_max),
            (4_194_304, 100_000)
        );
    }

    #[test]
    fn limits_per_address_are_switched_on_by_either_word() {
        for (value, expected) in [("on", true), ("true", true), ("off", false)] {
            let settings = read_with(&[("BEAM_PUBLIC_LIMITS", value)]).unwrap();
            assert_eq!(settings.public_limits, expected, "{value}");
        }
    }

    #[test]
    fn what_strangers_may_send_and_register_can_be_set() {
        let settings = read_with(&[
            ("BEAM_WRITE_BYTES_PER_MINUTE", "0"),
            ("BEAM_AGENTS_MAX", "7"),
        ])
        .unwrap();
        assert_eq!(
            (settings.write_bytes_per_minute, settings.agents_max),
            (0, 7)
        );
    }

    #[test]
    fn a_name_of_the_bus_wins_over_the_generic_one() {
        let settings = read_with(&[("RATE_LIMIT", "3"), ("BEAM_BUS_RATE_LIMIT", "4")]).unwrap();
        assert_eq!(settings.bus.rate_per_minute, 4);
        let settings = read_with(&[("RATE_LIMIT", "3"), ("RETRY_TIME_SCALE", "0.01")]).unwrap();
        assert_eq!(
            (settings.bus.rate_per_minute, settings.bus.retry_second_us),
            (3, 10_000)
        );
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named() {
        for (name, value) in [
            ("BEAM_RATE_LIMIT_PER_MIN", "0"),
            ("BEAM_RATE_LIMIT_PER_MIN", "many"),
            ("BEAM_WRITE_BYTES_PER_MINUTE", "4MiB"),
            ("BEAM_AGENTS_MAX", "-1"),
            ("RELAY_TIMEOUT_MS", "1"),
            ("RETRY_INTERVAL_MS", "-5"),
            ("RETRY_TIME_SCALE", "0"),
            ("RETRY_TIME_SCALE", "NaN"),
            ("BEAM_ALLOW_TARGETS", "http://x"),
            ("DIRECTORY_URL", "not a url"),
            ("BEAM_DIRECTORY_URL", "notaurl"),
            ("IDENTITY_PATH", "/nowhere/at/all.json"),
            ("BEAM_CATALOG_PATH", "/nowhere/at/all.json"),
        ] {
            let unusable = read_with(&[(name, value)]).unwrap_err();
            assert_eq!(unusable.name, name, "{}", unusable.why);
        }
    }

    #[test]
    fn a_bundle_of_identities_is_read_and_its_secrets_are_in_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.json");
        let private = "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
        let bundle = |key: &str| {
            format!(
                r#"{{"a":{{"beamId":"alice@acme.beam.directory","publicKeyBase64":"x","privateKeyBase64":"{key}"}}}}"#
            )
        };
        std::fs::write(&path, bundle(private)).unwrap();
        let path = path.to_str().unwrap();
        let settings = read_with(&[("IDENTITY_PATH", path)]).unwrap();
        assert_eq!(
            settings.bus.identities[0].beam_id,
            "alice@acme.beam.directory"
        );
        std::fs::write(path, bundle("c2VjcmV0LXRleHQ=")).unwrap();
        let unusable = read_with(&[("IDENTITY_PATH", path)]).unwrap_err();
        assert!(!unusable.why.contains("c2VjcmV0"), "{}", unusable.why);
    }
}
