//! Which defaults a daemon has on this machine: CI runners, containers, Kubernetes, `RunPod`.
//!
//! Invariant: an explicit flag or setting always decides; the environment changes defaults alone.

#[cfg(test)]
mod tests;

/// Set by CI systems. `CI` itself must be `true`, because people set it to other values by hand.
const CI_VARIABLES: &[&str] = &[
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "CIRCLECI",
    "JENKINS_URL",
];

/// Words in `/proc/1/cgroup` of a container.
const CONTAINER_RUNTIMES: &[&str] = &["docker", "containerd", "kubepods", "libpod", "lxc", "crio"];

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is found by itself, and any of them may hold at once"
)]
pub struct HostEnvironment {
    pub is_ci: bool,
    pub is_kubernetes: bool,
    pub is_runpod: bool,
    /// A container runtime, or the flag `--container`.
    pub is_contained: bool,
}

impl HostEnvironment {
    /// `variable` reads the environment, `has_dockerenv` whether `/.dockerenv` exists, `cgroup` is `/proc/1/cgroup`.
    pub fn detect(
        variable: impl Fn(&str) -> Option<String>,
        has_dockerenv: bool,
        cgroup: &str,
    ) -> Self {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        Self {
            is_ci: variable("CI").as_deref() == Some("true")
                || CI_VARIABLES.iter().any(|name| is_set(name)),
            is_kubernetes: is_set("KUBERNETES_SERVICE_HOST"),
            is_runpod: is_set("RUNPOD_POD_ID"),
            is_contained: has_dockerenv
                || CONTAINER_RUNTIMES.iter().any(|word| cgroup.contains(word)),
        }
    }

    /// Whether only the socket file is offered, unless settings say otherwise.
    pub const fn is_container(&self) -> bool {
        self.is_contained || self.is_kubernetes || self.is_runpod
    }
}

/// Where the keys of a daemon are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityMode {
    /// In a file, the same after each restart.
    Persistent,
    /// In memory, gone at the end.
    Ephemeral,
}

/// Flags of `daemon up`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityFlag {
    Unset,
    Persistent,
    Ephemeral,
}

/// The mode, and the name of the log line that explains it.
pub const fn identity(
    flag: IdentityFlag,
    environment: &HostEnvironment,
) -> (IdentityMode, Option<&'static str>) {
    match flag {
        IdentityFlag::Ephemeral => (IdentityMode::Ephemeral, None),
        IdentityFlag::Persistent if environment.is_ci => (
            IdentityMode::Persistent,
            Some("persistent_keypair_in_ci_environment"),
        ),
        IdentityFlag::Persistent => (IdentityMode::Persistent, None),
        IdentityFlag::Unset if environment.is_ci => (IdentityMode::Ephemeral, None),
        IdentityFlag::Unset if environment.is_runpod => (
            IdentityMode::Persistent,
            Some("runpod_persistent_default_assumed"),
        ),
        IdentityFlag::Unset => (IdentityMode::Persistent, None),
    }
}
