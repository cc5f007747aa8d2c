//! A site's settings in a file: one `NAME=value` per line, with the names of the variables.
//!
//! Invariant: an unknown line is refused with its number, and a file with secrets must not be readable by others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::site_settings::{LISTED, NAMES};
use crate::failure::Failure;
use crate::secrets::refuse_loose_mode;

#[derive(Default)]
pub(super) struct SiteFile(BTreeMap<String, String>);

impl SiteFile {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the site's settings in {}", path.display()))?;
        let settings = Self::parse(&text).map_err(|(line, why)| {
            let hint = format!(
                "a line is NAME=value or begins with #; known names: {}",
                NAMES.join(", ")
            );
            Failure::usage(format!("{}, line {line}: {why}", path.display())).hint(hint)
        })?;
        if settings.0.keys().any(|name| name.ends_with("_SECRET")) {
            refuse_loose_mode(path, "600")?;
        }
        Ok(settings)
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// An error never contains a value, which may be a secret.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut settings = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err((number, "the line has no =".to_owned()));
            };
            let (name, value) = (name.trim(), unquoted(value.trim()));
            if !NAMES.contains(&name) {
                return Err((number, "unknown setting".to_owned()));
            }
            match settings.get_mut(name) {
                None => {
                    settings.insert(name.to_owned(), value.to_owned());
                }
                Some(list) if name == LISTED => *list = format!("{list},{value}"),
                Some(_) => return Err((number, format!("{name} occurs twice"))),
            }
        }
        Ok(Self(settings))
    }
}

fn unquoted(value: &str) -> &str {
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_names_and_values() {
        let text = "# ours\n\nATP_SITE = https://shop.example\nATP_STRIPE_SECRET=\"sk=1\"\n\
                    ATP_REGISTERED_KEYS=ed25519:a\nATP_REGISTERED_KEYS=ed25519:b\n";
        let settings = SiteFile::parse(text).unwrap_or_default();
        let get = |name| settings.get(name).unwrap();
        assert_eq!(get("ATP_SITE"), "https://shop.example");
        assert_eq!(get("ATP_STRIPE_SECRET"), "sk=1");
        assert_eq!(get("ATP_REGISTERED_KEYS"), "ed25519:a,ed25519:b");
        assert_eq!(settings.get("ATP_RAIL"), None);
    }

    #[test]
    fn what_is_no_setting_is_refused_by_its_line() {
        for (text, line) in [
            ("ATP_SITE", 1),
            ("\nATP_STE=https://shop.example", 2),
            ("BUS_SECRET=x", 1),
            ("ATP_RAIL=null\n# twice\nATP_RAIL=http", 3),
        ] {
            let Err((found, why)) = SiteFile::parse(text) else {
                panic!("{text}");
            };
            assert_eq!(found, line, "{text}");
            assert!(!why.contains("shop.example"), "{why}");
        }
    }
}
