//! The version that says nothing, `*`, in our own manifests.
//!
//! As cargo-deny has it, `1.*` is a version like any other, and a crate of ours that is named by its path needs none.

/// Lines of the dependency tables of a `Cargo.toml` whose version is a wildcard.
pub(super) fn lines(manifest: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut table = String::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            header.clone_into(&mut table);
        } else if version(&table, line).is_some_and(|version| version.trim() == "*") {
            found.push(index + 1);
        }
    }
    found
}

/// The version that a line of a table gives: `name = "..."`, `name = { version = "..." }`, `name.version = "..."`, or
/// `version = "..."` in a table of the dependency's own.
fn version<'a>(table: &str, line: &'a str) -> Option<&'a str> {
    let (_, dependency) = table.split_once("dependencies")?;
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    if !dependency.is_empty() {
        return (key == "version").then(|| quoted(value)).flatten();
    }
    if value.starts_with('"') {
        let plain = !key.contains('.') || key.ends_with(".version");
        return plain.then(|| quoted(value)).flatten();
    }
    let (_, after) = value.split_once("version")?;
    quoted(after.trim_start().strip_prefix('=')?.trim_start())
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_found_however_it_is_written() {
        for (manifest, expected) in [
            ("[dependencies]\na = \"*\"", &[2][..]),
            ("[dependencies]\nb = \"1\"\na = \" * \" # why", &[3]),
            ("[dev-dependencies]\na = { version = \"*\" }", &[2]),
            ("[workspace.dependencies]\na.version = \"*\"", &[2]),
            ("[target.'cfg(unix)'.build-dependencies]\na = \"*\"", &[2]),
            ("[dependencies.a]\nfeatures = []\nversion = \"*\"", &[3]),
        ] {
            assert_eq!(lines(manifest), expected, "{manifest}");
        }
    }

    #[test]
    fn what_has_a_version_or_a_place_is_none() {
        let manifest = "[workspace]\nmembers = [\"crates/*\"]\n[dependencies]\na = \"1.*\"\nb = { path = \"*\" }\n\
                        c.workspace = true\nd = { version = \"1\", features = [\"*\"] }\n# e = \"*\"\n\
                        f.path = \"*\"\n[profile.dev.package.\"*\"]\ndebug = \"*\"\n";
        assert_eq!(lines(manifest), []);
    }
}
