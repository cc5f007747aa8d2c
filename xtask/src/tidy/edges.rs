//! Which crate may depend on which. An edge that is not in the table is a violation.
//!
//! Only what is shipped counts: dev-dependencies may point anywhere, so that tests can reach the testkit.

use super::Finding;
use crate::manifest::{self, Dependency, Kind};
use crate::tree::{File, Tree};

/// A package of this repository and those of ours it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("consign-kernel", &[]),
    ("consign-store", &["consign-kernel"]),
    ("consign-engine", &["consign-kernel", "consign-store"]),
    ("consign-web", &["consign-kernel", "consign-engine"]),
    (
        "consign-intent",
        &["consign-kernel", "consign-engine", "consign-web"],
    ),
    (
        "consign-automation",
        &["consign-kernel", "consign-engine", "consign-web"],
    ),
    (
        "consign-transactions",
        &[
            "consign-kernel",
            "consign-engine",
            "consign-web",
            "consign-client",
        ],
    ),
    (
        "consign-beam",
        &[
            "consign-kernel",
            "consign-engine",
            "consign-web",
            "consign-client",
        ],
    ),
    (
        "consign-mesh",
        &[
            "consign-kernel",
            "consign-store",
            "consign-engine",
            "consign-web",
            // The daemon publishes intents at their server.
            "consign-client",
        ],
    ),
    ("consign-client", &["consign-kernel"]),
    ("consign-bench", &["consign-client"]),
    (
        "consign",
        &[
            "consign-kernel",
            "consign-store",
            "consign-engine",
            "consign-web",
            "consign-intent",
            "consign-automation",
            "consign-transactions",
            "consign-beam",
            "consign-mesh",
            "consign-client",
            "consign-bench",
        ],
    ),
    (
        "consign-testkit",
        &[
            "consign-kernel",
            "consign-store",
            "consign-engine",
            "consign-web",
            "consign-intent",
            "consign-beam",
            "consign-mesh",
            "consign-client",
            "consign",
        ],
    ),
    (
        "consign-fuzz",
        &[
            "consign-kernel",
            "consign-store",
            "consign-engine",
            "consign-web",
            "consign-intent",
            "consign-client",
            "consign-automation",
            "consign-transactions",
            "consign-beam",
            "consign-mesh",
        ],
    ),
    // Measures the binary as it measures the others; without the testkit's feature `ours`.
    ("consign-peers", &["consign-testkit"]),
    (XTASK, &[]),
];

/// Must build in seconds, hence without any dependency, ours or not.
const XTASK: &str = "xtask";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.files.iter().filter(|file| {
        let folders = file.path.split('/').count();
        matches!(&*file.path, "xtask/Cargo.toml" | "peers/Cargo.toml")
            || (file.path.starts_with("crates/")
                && file.path.ends_with("/Cargo.toml")
                && folders == 3)
    });
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(file: &File) -> Vec<Finding> {
    let Some(package) = manifest::package_name(&file.text) else {
        return vec![Finding::violation(
            &file.path,
            1,
            "there is no package name",
        )];
    };
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package) else {
        let message = format!(
            "`{package}` has no row in the table of allowed edges (xtask/src/tidy/edges.rs)"
        );
        return vec![Finding::violation(&file.path, 1, message)];
    };
    let refused = |dependency: &Dependency| {
        let ours = ALLOWED.iter().any(|(name, _)| *name == dependency.name);
        match dependency.kind {
            Kind::Dev => package == XTASK,
            Kind::Normal | Kind::Build if package == XTASK => true,
            Kind::Normal | Kind::Build => ours && !allowed.contains(&dependency.name.as_str()),
        }
    };
    let dependencies = manifest::dependencies(&file.text)
        .into_iter()
        .filter(refused);
    dependencies
        .map(|dependency| {
            let message = format!("`{package}` must not depend on `{}`", dependency.name);
            Finding::violation(&file.path, dependency.line, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<(usize, String)> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.into_iter().map(|f| (f.line, f.message)).collect()
    }

    #[test]
    fn an_edge_that_is_not_allowed_is_found() {
        let text = "[package]\nname = \"consign-intent\"\n[dependencies]\nconsign-store = { workspace = true }\n\
                    consign-engine = { workspace = true }\nserde = \"1\"\n";
        let found = check_one("crates/intent/Cargo.toml", text);
        assert_eq!(
            found,
            [(
                4,
                "`consign-intent` must not depend on `consign-store`".to_owned()
            )]
        );
    }

    #[test]
    fn the_testkit_is_for_tests_alone() {
        let dev = "[package]\nname = \"consign\"\n[dev-dependencies]\nconsign-testkit = \"0\"\n";
        assert_eq!(check_one("crates/consign/Cargo.toml", dev), []);
        let shipped = dev.replace("dev-", "");
        assert_eq!(check_one("crates/consign/Cargo.toml", &shipped).len(), 1);
    }

    #[test]
    fn this_crate_may_depend_on_nothing() {
        let text = "[package]\nname = \"xtask\"\n[dependencies]\nserde = \"1\"\n";
        assert_eq!(check_one("xtask/Cargo.toml", text).len(), 1);
    }

    #[test]
    fn a_crate_outside_of_the_table_is_found() {
        let found = check_one(
            "crates/new/Cargo.toml",
            "[package]\nname = \"consign-new\"\n",
        );
        assert!(found[0].1.contains("no row"), "{found:?}");
    }
}
