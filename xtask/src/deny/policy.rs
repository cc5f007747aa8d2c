//! What of `deny.toml` is enforced without cargo-deny: allowed licences, their exceptions, banned crates,
//! and whether wildcards are refused.
//!
//! This is no TOML reader: it knows `[table]`, `key = "word"`, and `key = [ ... ]` over several lines, as the file is
//! written.
//! A list that cannot be found is an error and never an empty list.

#[derive(Debug)]
pub(super) struct Policy {
    licences: Vec<String>,
    /// Crate and licence.
    exceptions: Vec<(String, String)>,
    pub(super) banned: Vec<String>,
    pub(super) refuses_wildcards: bool,
}

impl Policy {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let licences = list(text, "licenses", "allow").map(|list| quoted(&list));
        let banned = list(text, "bans", "deny").map(|list| crates(&list));
        let exceptions = list(text, "licenses", "exceptions").unwrap_or_default();
        match (licences, banned) {
            (Some(licences), Some(banned)) if !licences.is_empty() && !banned.is_empty() => {
                Ok(Self {
                    licences,
                    exceptions: exceptions.lines().flat_map(exception).collect(),
                    banned,
                    refuses_wildcards: word(text, "bans", "wildcards") == Some("deny"),
                })
            }
            _ => Err("deny.toml must list licenses.allow and bans.deny".to_owned()),
        }
    }

    pub(super) fn allows(&self, licence: &str, package: &str) -> bool {
        let excepted = |(name, allowed): &(String, String)| name == package && allowed == licence;
        self.licences.iter().any(|allowed| allowed == licence)
            || self.exceptions.iter().any(excepted)
    }
}

/// The value of `key = "word"` in a table.
fn word<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let mut here = "";
    text.lines().map(str::trim).find_map(|line| {
        if line.starts_with('[') {
            here = line.trim_matches(['[', ']']);
        }
        let value = line.strip_prefix(key)?.trim_start().strip_prefix('=')?;
        let value = (here == table).then_some(value)?.trim_start();
        value.strip_prefix('"')?.split('"').next()
    })
}

/// What stands between the brackets of `key = [ ... ]` in a table, comments left out.
fn list(text: &str, table: &str, key: &str) -> Option<String> {
    let mut here = "";
    let mut lines = text.lines().map(str::trim);
    let opening = lines.by_ref().find_map(|line| {
        if line.starts_with('[') {
            here = line.trim_matches(['[', ']']);
        }
        let value = line.strip_prefix(key)?.trim_start().strip_prefix('=')?;
        (here == table)
            .then_some(value)?
            .trim_start()
            .strip_prefix('[')
    })?;
    if let Some(whole) = opening.strip_suffix(']') {
        return Some(whole.to_owned());
    }
    let rest = lines
        .take_while(|line| *line != "]")
        .filter(|line| !line.starts_with('#'));
    Some(
        [opening]
            .into_iter()
            .chain(rest)
            .collect::<Vec<_>>()
            .join("\n"),
    )
}

fn quoted(text: &str) -> Vec<String> {
    let every_second = text.split('"').skip(1).step_by(2);
    every_second.map(str::to_owned).collect()
}

/// One `{ crate = "...", ... }` per line.
fn crates(text: &str) -> Vec<String> {
    let named = text.lines().filter_map(|line| line.split_once("crate = "));
    named
        .filter_map(|(_, rest)| quoted(rest).into_iter().next())
        .collect()
}

/// `{ allow = ["...", ...], crate = "..." }`
fn exception(line: &str) -> Vec<(String, String)> {
    let (Some(name), Some((_, allowed))) = (crates(line).pop(), line.split_once("allow = ")) else {
        return Vec::new();
    };
    let allowed = allowed.split(']').next().unwrap_or_default();
    let allowed = quoted(allowed).into_iter();
    allowed.map(|licence| (name.clone(), licence)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_read_as_they_are_written() {
        let text = "[licenses]\nversion = 2\n# a remark\nallow = [\n    \"MIT\",\n    # \"GPL-3.0\",\n    \"ISC\",\n]\n\
                    exceptions = [\n    { allow = [\"NCSA\"], crate = \"x\" },\n]\n\n\
                    [bans]\ndeny = [{ crate = \"chrono\", reason = \"time is \\\"jiff\\\"\" }]\n";
        let policy = Policy::read(text).unwrap();
        assert_eq!(policy.licences, ["MIT", "ISC"]);
        assert_eq!(policy.banned, ["chrono"]);
        assert!(policy.allows("NCSA", "x") && !policy.allows("NCSA", "y"));
        assert!(!policy.refuses_wildcards);
        let strict = text.replace("[bans]", "[bans]\nwildcards = \"deny\"");
        assert!(Policy::read(&strict).unwrap().refuses_wildcards);
    }

    #[test]
    fn a_file_without_its_lists_is_refused() {
        assert!(Policy::read("[licenses]\nallow = []\n[bans]\ndeny = []\n").is_err());
        assert!(Policy::read("[bans]\nallow = [\"MIT\"]\n").is_err());
    }

    #[test]
    fn the_file_of_this_repository_is_understood() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let text = crate::context::read(&root.unwrap().join("deny.toml")).unwrap();
        let policy = Policy::read(&text).unwrap();
        assert!(policy.allows("MIT", "any") && !policy.allows("GPL-3.0-only", "any"));
        assert!(policy.banned.len() > 3, "{policy:?}");
        assert!(policy.refuses_wildcards);
    }
}
