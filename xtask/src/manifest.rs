//! Reads the dependency tables of a `Cargo.toml`, as far as the rules about edges need them.
//!
//! It understands `name = ...`, `name.workspace = true`, `[dependencies.name]`, tables for one target, and `package = "..."`.

/// The table of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// One entry of a dependency table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The real package name, also when the entry renames it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Counted from 1.
    pub(crate) line: usize,
}

/// The package's name, if the file describes one.
pub(crate) fn package_name(text: &str) -> Option<String> {
    let mut table = "";
    for line in text.lines().map(str::trim) {
        if let Some(header) = header(line) {
            table = header;
        } else if table == "package" && line.split('=').next()?.trim() == "name" {
            return quoted_after(line, "name");
        }
    }
    None
}

pub(crate) fn dependencies(text: &str) -> Vec<Dependency> {
    let mut found: Vec<Dependency> = Vec::new();
    let mut table: Option<(Kind, Option<String>)> = None;
    let mut open_brackets = 0_usize;
    for (index, line) in text.lines().enumerate() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let starts_inside_a_value = open_brackets > 0;
        let is_header = !starts_inside_a_value && header(line).is_some();
        if !is_header {
            open_brackets += line.matches(['[', '{']).count();
            open_brackets = open_brackets.saturating_sub(line.matches([']', '}']).count());
        }
        if starts_inside_a_value {
            continue;
        }
        if let Some(header) = header(line) {
            table = dependency_table(header);
            if let Some((kind, Some(name))) = &table {
                found.push(Dependency {
                    name: name.clone(),
                    kind: *kind,
                    line: index + 1,
                });
            }
            continue;
        }
        match &table {
            Some((_, Some(_))) => {
                if let (Some(renamed), Some(last)) =
                    (quoted_after(line, "package"), found.last_mut())
                {
                    last.name = renamed;
                }
            }
            Some((kind, None)) => {
                let key = line.split(['=', '.']).next().unwrap_or_default();
                found.push(Dependency {
                    name: quoted_after(line, "package")
                        .unwrap_or_else(|| key.trim().replace('"', "")),
                    kind: *kind,
                    line: index + 1,
                });
            }
            None => {}
        }
    }
    found
}

fn header(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']')
}

/// `dependencies`, `target.'cfg(unix)'.dev-dependencies`, `dependencies.name`.
fn dependency_table(header: &str) -> Option<(Kind, Option<String>)> {
    let kinds = [
        ("dev-dependencies", Kind::Dev),
        ("build-dependencies", Kind::Build),
        ("dependencies", Kind::Normal),
    ];
    for (word, kind) in kinds {
        let Some(at) = header.find(word) else {
            continue;
        };
        let before = &header[..at];
        if !(before.is_empty() || before.starts_with("target.")) {
            return None;
        }
        let name = header[at + word.len()..].strip_prefix('.');
        return Some((kind, name.map(|name| name.replace('"', ""))));
    }
    None
}

/// The text in quotes after `key =`.
fn quoted_after(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(key)?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start();
    let (value, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_dependency_is_seen() {
        let text = r#"
[package]
name = "consign-x"

[features]
planted = ["consign-kernel/planted"]

[dependencies]
consign-kernel = { workspace = true }
serde.workspace = true # a remark
renamed = { package = "consign-store", path = "../store" }
long = { version = "1", features = [
    "rusqlite = trap",
] }

[dependencies.consign-engine]
path = "../engine"

[target.'cfg(unix)'.dependencies]
libc = "0.2"

[dev-dependencies]
consign-testkit = { workspace = true }

[workspace.dependencies]
elsewhere = "1"
"#;
        let names = |kind| -> Vec<String> {
            let all = dependencies(text).into_iter();
            all.filter(|d| d.kind == kind).map(|d| d.name).collect()
        };
        assert_eq!(package_name(text).as_deref(), Some("consign-x"));
        assert_eq!(
            names(Kind::Normal),
            [
                "consign-kernel",
                "serde",
                "consign-store",
                "long",
                "consign-engine",
                "libc"
            ]
        );
        assert_eq!(names(Kind::Dev), ["consign-testkit"]);
        assert_eq!(dependencies(text)[0].line, 9);
    }
}
