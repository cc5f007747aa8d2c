//! Bearer tokens and their scopes.
//!
//! A token is looked up by comparing hashes, all of them and in constant time, so that neither its length nor its position leaks.

use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use super::fields::nearest;
use super::model::ConfigSecret;

/// The areas of the known scopes.
const AREAS: &[&str] = &["plugin", "jobs", "events", "system"];

/// All tokens that the API accepts.
#[derive(Clone, Debug, Default)]
pub struct TokenRegistry(Vec<TokenHolder>);

#[derive(Clone, Debug)]
pub struct TokenHolder {
    /// For the log; the value itself is not kept.
    pub name: String,
    digest: [u8; 32],
    /// The hash of the value.
    length: usize,
    scopes: Option<Scopes>,
}

impl TokenRegistry {
    /// `scopes` is `None` if they could not be verified: such a token is known but allows nothing.
    pub(super) fn add(&mut self, name: &str, key: &ConfigSecret, scopes: Option<Scopes>) {
        self.0.push(TokenHolder {
            name: name.to_owned(),
            digest: digest(key.expose()),
            length: key.expose().len(),
            scopes,
        });
    }

    /// The name of a token with fewer characters.
    pub fn shorter_than(&self, characters: usize) -> Option<&str> {
        let short = self.0.iter().find(|holder| holder.length < characters);
        short.map(|holder| holder.name.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The holder of a presented token.
    pub fn holder(&self, presented: &str) -> Option<&TokenHolder> {
        let presented = digest(presented);
        let mut found = 0_u64;
        for (holder, position) in self.0.iter().zip(1..) {
            let same = holder.digest.ct_eq(&presented);
            found.conditional_assign(&position, same & found.ct_eq(&0));
        }
        let position = usize::try_from(found).ok()?.checked_sub(1)?;
        self.0.get(position)
    }

    /// Finds the same token in this registry, for a caller that an earlier registry authenticated.
    pub fn find_same(&self, holder: &TokenHolder) -> Option<&TokenHolder> {
        self.0.iter().find(|known| known.digest == holder.digest)
    }
}

impl TokenHolder {
    /// Equal for equal tokens in every registry.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    pub fn may(&self, needed: &str) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_some_and(|scopes| scopes.allow(needed))
    }
}

fn digest(value: &str) -> [u8; 32] {
    blake3::hash(value.as_bytes()).into()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

impl Scopes {
    pub(super) fn new(scopes: Vec<String>) -> Self {
        Self(scopes)
    }

    /// `*` allows everything, `rw` includes `ro`, and a wide scope includes its narrow ones: `jobs:ro` allows `jobs:logs:ro`.
    pub fn allow(&self, needed: &str) -> bool {
        let Some((area, mode)) = needed.rsplit_once(':') else {
            return self.0.iter().any(|held| held == "*" || held == needed);
        };
        self.0.iter().any(|held| {
            let wide_enough = |(held_area, held_mode): (&str, &str)| {
                let inside = area.strip_prefix(held_area);
                let inside = inside.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
                inside && (held_mode == "rw" || held_mode == mode)
            };
            held == "*" || held.rsplit_once(':').is_some_and(wide_enough)
        })
    }

    /// Scopes that no endpoint requires, each with a suggestion.
    pub(super) fn unknown(&self) -> impl Iterator<Item = (&str, Option<&'static str>)> {
        self.0.iter().filter_map(|scope| {
            let area = scope.split(':').next().unwrap_or_default();
            let mode = scope.rsplit_once(':').map(|(_, mode)| mode);
            let known = AREAS.contains(&area) && matches!(mode, Some("ro" | "rw"));
            let fits = known || scope == "*";
            (!fits).then(|| (scope.as_str(), nearest(area, AREAS)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(held: &[&str]) -> Scopes {
        Scopes::new(held.iter().map(|scope| (*scope).to_owned()).collect())
    }

    #[test]
    fn wide_scopes_hold_narrow_ones_and_writing_holds_reading_du_106() {
        let allowed = [
            ("*", "plugin:rw"),
            ("plugin:rw", "plugin:ro"),
            ("plugin:ro", "plugin:ro"),
            ("jobs:ro", "jobs:logs:ro"),
            ("jobs:rw", "jobs:status:ro"),
        ];
        for (held, needed) in allowed {
            assert!(scopes(&[held]).allow(needed), "{held} {needed}");
        }
        let refused = [
            ("plugin:ro", "plugin:rw"),
            ("jobs:logs:ro", "jobs:ro"),
            ("job:rw", "jobs:ro"),
            ("jobs", "jobs:ro"),
            ("", "jobs:ro"),
            ("events:rw", "jobs:ro"),
        ];
        for (held, needed) in refused {
            assert!(!scopes(&[held]).allow(needed), "{held} {needed}");
        }
        assert!(!scopes(&[]).allow("jobs:ro"));
    }

    #[test]
    fn a_token_is_found_by_its_whole_value_du_024() {
        let mut registry = TokenRegistry::default();
        for (name, key) in [("a", "one"), ("b", "two"), ("c", "two")] {
            registry.add(
                name,
                &ConfigSecret::new(key.to_owned()),
                Some(scopes(&["jobs:ro"])),
            );
        }
        let name = |presented: &str| {
            registry
                .holder(presented)
                .map(|holder| holder.name.as_str())
        };
        assert_eq!(name("one"), Some("a"));
        assert_eq!(name("two"), Some("b"));
        assert_eq!(name("on"), None);
        assert_eq!(name(""), None);
        assert!(registry.holder("one").unwrap().may("jobs:ro"));
    }

    #[test]
    fn an_unknown_scope_is_noticed() {
        let held = scopes(&["*", "plugins:rw", "jobs:logs:ro", "jobs:write"]);
        let unknown: Vec<_> = held.unknown().collect();
        assert_eq!(
            unknown,
            [("plugins:rw", Some("plugin")), ("jobs:write", Some("jobs"))]
        );
    }
}
