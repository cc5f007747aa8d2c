//! Debian packages: a missing one is installed by apt-get, which needs root.

use crate::TaskResult;
use crate::context::Context;
use crate::process::{self, Output};

/// A package, and a program or folder that exists if it is installed.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) brings: &'static str,
}

pub(crate) const POSTGRESQL: Package = Package {
    name: "postgresql",
    brings: "/usr/lib/postgresql",
};

pub(crate) const NODE: Package = Package {
    name: "nodejs",
    brings: "node",
};
/// Builds the Go client of the mesh and a program that uses it.
pub(crate) const GO: Package = Package {
    name: "golang-go",
    brings: "go",
};
/// The sandbox of the daemon's hooks.
pub(crate) const BUBBLEWRAP: Package = Package {
    name: "bubblewrap",
    brings: "bwrap",
};
/// Checks metrics and alert rules.
pub(crate) const PROMETHEUS: Package = Package {
    name: "prometheus",
    brings: "promtool",
};
pub(crate) const NPM: Package = Package {
    name: "npm",
    brings: "npm",
};

pub(crate) fn install(context: &Context, package: &Package) -> TaskResult {
    let Package { name, brings } = package;
    if is_there(brings) {
        return Ok(());
    }
    let by_hand = format!("apt-get update && apt-get install -y --no-install-recommends {name}");
    let user = process::output_of(context.program("id", &["-u"])).unwrap_or_default();
    if user.trim() != "0" {
        return Err(format!(
            "{brings} is missing; install it as root with: {by_hand}"
        ));
    }
    for args in [
        &["update", "--quiet"][..],
        &[
            "install",
            "--yes",
            "--quiet",
            "--no-install-recommends",
            name,
        ],
    ] {
        let mut command = context.program("apt-get", args);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        process::run(command, Output::Stderr, context.deadline)
            .and_then(|ended| ended.require_success(&format!("installing {name}")))
            .map_err(|error| format!("{error}; install it with: {by_hand}"))?;
    }
    if is_there(brings) {
        Ok(())
    } else {
        Err(format!("the package {name} did not bring {brings}"))
    }
}

fn is_there(what: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // Joining an absolute path gives that path, whatever the folder.
    std::env::split_paths(&folders).any(|folder| folder.join(what).exists())
}
