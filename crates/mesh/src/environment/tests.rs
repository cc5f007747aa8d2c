//! The table of defaults.

use super::*;
use crate::config::DaemonConfig;

fn with(variables: &[(&str, &str)]) -> HostEnvironment {
    let variable = |name: &str| {
        let found = variables.iter().find(|(one, _)| *one == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    HostEnvironment::detect(variable, false, "0::/init.scope")
}

#[test]
fn ci_runners_are_ephemeral_unless_the_flag_says_otherwise() {
    let ephemeral = |variables: &[(&str, &str)]| {
        identity(IdentityFlag::Unset, &with(variables)).0 == IdentityMode::Ephemeral
    };
    assert!(ephemeral(&[("CI", "true")]));
    for name in CI_VARIABLES {
        assert!(ephemeral(&[(*name, "1")]), "{name}");
    }
    assert!(!ephemeral(&[]) && !ephemeral(&[("CI", "1")]) && !ephemeral(&[("GITLAB_CI", "")]));
    let forced = identity(IdentityFlag::Persistent, &with(&[("CI", "true")]));
    assert_eq!(
        forced,
        (
            IdentityMode::Persistent,
            Some("persistent_keypair_in_ci_environment")
        )
    );
    let plain = identity(IdentityFlag::Persistent, &with(&[]));
    assert_eq!(plain, (IdentityMode::Persistent, None));
    assert_eq!(
        identity(IdentityFlag::Ephemeral, &with(&[])).0,
        IdentityMode::Ephemeral
    );
}

#[test]
fn runpod_and_kubernetes_keep_their_identity() {
    let runpod = identity(IdentityFlag::Unset, &with(&[("RUNPOD_POD_ID", "x")]));
    assert_eq!(
        runpod,
        (
            IdentityMode::Persistent,
            Some("runpod_persistent_default_assumed")
        )
    );
    let kubernetes = identity(
        IdentityFlag::Unset,
        &with(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]),
    );
    assert_eq!(kubernetes, (IdentityMode::Persistent, None));
}

#[test]
fn each_environment_has_its_row_of_defaults() {
    let docker = HostEnvironment {
        is_contained: true,
        ..HostEnvironment::default()
    };
    let rows = [
        (with(&[]), IdentityMode::Persistent, true, true),
        (docker, IdentityMode::Persistent, false, true),
        (
            with(&[("KUBERNETES_SERVICE_HOST", "h")]),
            IdentityMode::Persistent,
            false,
            true,
        ),
        (
            with(&[("CI", "true")]),
            IdentityMode::Ephemeral,
            false,
            false,
        ),
        (
            with(&[("RUNPOD_POD_ID", "x")]),
            IdentityMode::Persistent,
            false,
            true,
        ),
    ];
    let config = DaemonConfig::default();
    for (environment, mode, tcp, hooks) in rows {
        assert_eq!(
            identity(IdentityFlag::Unset, &environment).0,
            mode,
            "{environment:?}"
        );
        assert_eq!(config.tcp_enabled(&environment), tcp, "{environment:?}");
        assert_eq!(config.hooks_enabled(&environment), hooks, "{environment:?}");
    }
    let set = DaemonConfig::parse("[ipc]\ntcp_enabled = true\n[hooks]\nenabled = true").unwrap();
    assert!(set.tcp_enabled(&docker) && set.hooks_enabled(&with(&[("CI", "true")])));
}

#[test]
fn containers_are_found_by_file_and_by_control_group() {
    let none = |_: &str| None;
    assert!(HostEnvironment::detect(none, true, "").is_container());
    for cgroup in [
        "12:pids:/docker/abc",
        "0::/kubepods/x",
        "1:name=systemd:/libpod-1",
    ] {
        assert!(
            HostEnvironment::detect(none, false, cgroup).is_container(),
            "{cgroup}"
        );
    }
    assert!(!HostEnvironment::detect(none, false, "0::/user.slice").is_container());
}
