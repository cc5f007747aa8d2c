//! Defaults, and what is refused.

use super::*;
use crate::environment::{IdentityFlag, IdentityMode, identity};
use crate::role::DaemonCapability;

fn parsed(text: &str) -> DaemonConfig {
    DaemonConfig::parse(text).unwrap()
}

fn refused(text: &str) -> String {
    DaemonConfig::parse(text).unwrap_err().to_string()
}

#[test]
fn cm_121_every_key_has_its_listed_default() {
    let config = parsed("");
    assert_eq!(config, DaemonConfig::default());
    assert_eq!(
        (
            config.daemon.mesh.as_ref(),
            config.daemon.log_level.as_str()
        ),
        (None, "info")
    );
    let ipc = &config.ipc;
    assert_eq!(
        (ipc.http_port, ipc.http_bind.as_str(), ipc.uds_permissions()),
        (0, "127.0.0.1", Some(0o600))
    );
    assert_eq!(
        (ipc.max_body_bytes, ipc.max_inflight, ipc.max_sse),
        (1_048_576, 64, 32)
    );
    assert_eq!((ipc.rate_per_s, ipc.rate_burst), (100, 1_000));
    assert!(
        !ipc.public_health_check
            && ipc.http_external_auth.is_none()
            && ipc.origin_allowlist.is_empty()
    );
    let outbox = &config.outbox;
    assert_eq!(
        (outbox.max_queue_size, outbox.fsync_mode),
        (10_000, FsyncMode::Batched)
    );
    assert_eq!((outbox.max_age_hours, outbox.max_age_hours_cap), (168, 720));
    assert_eq!(
        (
            outbox.max_age_hours_override,
            outbox.min_dedupe_retention_days
        ),
        (None, 3)
    );
    assert_eq!(
        (config.inbox.retention_days, config.inbox.fts_enabled),
        (30, false)
    );
    let reconnect = &config.reconnect;
    assert_eq!(
        (
            reconnect.initial_backoff_ms,
            reconnect.max_backoff_ms,
            reconnect.jitter_pct
        ),
        (500, 30_000, 25)
    );
    assert!((reconnect.backoff_multiplier - 2.0).abs() < f64::EPSILON);
    let hooks = &config.hooks;
    assert_eq!(
        (
            hooks.concurrency,
            hooks.default_timeout_s,
            hooks.stdin_limit_bytes
        ),
        (8, 30, 262_144)
    );
    assert!(config.metrics.prometheus_enabled && config.metrics.otel_endpoint.is_empty());
    assert!(
        DaemonCapability::ALL
            .iter()
            .all(|one| !config.capabilities.has(*one))
    );
    assert_eq!(config.fleet.max_daemons, 10);
    assert_eq!(config.fleet.total_memory_budget, ByteSize::gigabytes(2));
    assert_eq!(config.fleet.total_disk_budget, ByteSize::gigabytes(20));
    assert_eq!(config.daemon.display_name, None);
    // These depend on the machine.
    assert_eq!((ipc.tcp_enabled, config.hooks.enabled), (None, None));
    assert_eq!(
        config.features.require,
        ["client_message_id_dedupe", "concurrent_connection_policy"]
    );
    assert_eq!(
        config.features.optional,
        ["mesh_skill_share", "mcp_host", "max_payload"]
    );
    assert_eq!(config.fleet.memory_per_daemon(4), ByteSize(500_000_000));
    assert_eq!(config.disk.reserved_bytes, ByteSize::gigabytes(5));
    assert_eq!(config.clone.policy, CloneMismatch::Refuse);
    assert_eq!(
        (
            config.crypto.key_grace_period_days,
            config.crypto.max_archived_keys
        ),
        (7, 8)
    );
    assert_eq!(config.needs(), FeatureNeeds::default());
    assert_eq!(config.max_age(), MaxAgeSettings::default());
    assert_eq!(config.host_fingerprint.id_override, None);
}

#[test]
fn settings_replace_their_defaults() {
    let config = parsed(
        r#"
        [daemon]
        mesh = "mesh-one"
        [ipc]
        tcp_enabled = true
        [outbox]
        fsync_mode = "strict"
        max_age_hours_override = 12
        min_dedupe_retention_days = 7
        [capabilities]
        state = true
        [fleet]
        total_memory_budget = "512MB"
        [clone]
        policy = "warn"
        [features]
        require = ["key_epoch"]
        "#,
    );
    assert_eq!(config.daemon.mesh.as_ref().unwrap().as_str(), "mesh-one");
    assert_eq!(config.outbox.fsync_mode, FsyncMode::Strict);
    assert_eq!(config.max_age().override_hours, Some(12));
    assert_eq!(config.needs().dedupe_days_min, 7);
    assert_eq!(config.needs().require, ["key_epoch"]);
    assert!(config.capabilities.has(DaemonCapability::State));
    assert_eq!(config.fleet.total_memory_budget, ByteSize(512_000_000));
    assert_eq!(config.clone.policy, CloneMismatch::Warn);
}

#[test]
fn unknown_keys_and_wrong_types_are_refused_with_their_place() {
    let error = refused("[outbox]\nmax_queue_sise = 5\n");
    assert!(
        error.contains("max_queue_sise") && error.contains("line 2"),
        "{error}"
    );
    for text in [
        "[outpost]\na = 1",
        "[outbox]\nmax_queue_size = \"many\"",
        "[outbox]\nmax_queue_size = -1",
        "[outbox]\nfsync_mode = \"sometimes\"",
        "[daemon]\nmesh = \"Not A Slug\"",
        "[disk]\nreserved_bytes = \"5 bananas\"",
        "[clone]\npolicy = \"ask\"",
        "not toml",
    ] {
        assert!(
            matches!(DaemonConfig::parse(text), Err(DaemonConfigError::Syntax(_))),
            "{text}"
        );
    }
}

#[test]
fn values_outside_of_their_limits_are_refused_by_name() {
    for (text, key) in [
        ("[ipc]\nhttp_bind = \"0.0.0.0\"", "ipc.http_bind"),
        ("[ipc]\nhttp_bind = \"everywhere\"", "ipc.http_bind"),
        ("[ipc]\nuds_mode = \"0666\"", "ipc.uds_mode"),
        ("[ipc]\nuds_mode = \"rw\"", "ipc.uds_mode"),
        ("[ipc]\nuds_mode = \"0400\"", "ipc.uds_mode"),
        (
            "[ipc]\nhttp_external_auth = \"token\"",
            "ipc.http_external_auth",
        ),
        ("[inbox]\nfts_enabled = true", "inbox.fts_enabled"),
        (
            "[metrics]\notel_endpoint = \"http://127.0.0.1:4317\"",
            "metrics.otel_endpoint",
        ),
        ("[capabilities]\nmemory = true", "capabilities"),
        (
            "[capabilities]\nstate = true\ninbox_fts = true",
            "capabilities",
        ),
        ("[ipc]\nrate_per_s = 0", "ipc.rate_per_s"),
        ("[outbox]\nmax_queue_size = 0", "outbox.max_queue_size"),
        ("[intents]\nurl = \"ws://host\"", "intents.url"),
        ("[intents]\nurl = \"http://host/path?query\"", "intents.url"),
        ("[intents]\nmax_age_hours = 0", "intents.max_age_hours"),
        ("[intents]\nmax_age_hours = 24", "intents.max_age_hours"),
        ("[outbox]\nmax_age_hours = 721", "outbox.max_age_hours"),
        (
            "[outbox]\nmax_age_hours_override = 0",
            "outbox.max_age_hours_override",
        ),
        (
            "[outbox]\nmin_dedupe_retention_days = 2",
            "outbox.min_dedupe_retention_days",
        ),
        (
            "[reconnect]\nmax_backoff_ms = 1",
            "reconnect.max_backoff_ms",
        ),
        (
            "[reconnect]\nbackoff_multiplier = 0.5",
            "reconnect.backoff_multiplier",
        ),
        (
            "[reconnect]\nbackoff_multiplier = nan",
            "reconnect.backoff_multiplier",
        ),
        ("[reconnect]\njitter_pct = 101", "reconnect.jitter_pct"),
        ("[hooks]\nconcurrency = 0", "hooks.concurrency"),
        (
            "[crypto]\nkey_grace_period_days = 31",
            "crypto.key_grace_period_days",
        ),
    ] {
        let error = refused(text);
        assert!(error.starts_with(&format!("{key}: ")), "{text}: {error}");
    }
    // A part that does not exist is as if it were not there, and so is a setting that changes nothing.
    parsed(
        "[inbox]\nfts_enabled = false\n[metrics]\notel_endpoint = \"\"\n[capabilities]\nmemory = false",
    );
    let external = parsed("[ipc]\nhttp_bind = \"0.0.0.0\"\nhttp_external_auth = \"/etc/token\"");
    assert_eq!(external.ipc.http_bind, "0.0.0.0");
}

#[test]
fn hooks_are_listed_by_the_names_of_their_files() {
    let text = r#"
        [on-message]
        [on-topic-alerts]
        enabled = false
        [on-dm]
        allow_reply = true
        capability_token_scope = ["reply:event", "dm:send:<sender_pubkey>", "topic:ops:post"]
        network_policy = "allowlist"
        network_allowlist = ["10.0.0.1"]
        fs_policy = "rw"
        sandbox = "bubblewrap"
    "#;
    let file = HooksFile::parse(text).unwrap();
    assert_eq!(file.enabled("on-message"), Some(&HookSettings::default()));
    assert_eq!(file.enabled("on-topic-alerts"), None);
    assert_eq!(file.enabled("pre-send"), None);
    let direct = file.enabled("on-dm").unwrap();
    assert!(direct.allow_reply && direct.sandbox == Some(HookSandbox::Bubblewrap));
    assert_eq!(direct.fs_policy, Some(FsPolicy::Rw));
    let defaults = HookSettings::default();
    assert_eq!(
        (defaults.timeout_s, defaults.output_size_limit),
        (None, 65_536)
    );
    assert_eq!(
        (defaults.network_policy, defaults.fs_policy),
        (NetworkPolicy::Deny, None)
    );
    for refused in [
        "[on-massage]",
        "[on-topic-]",
        "[\"on-topic-../x\"]",
        "[on-dm]\ntimeout = 5",
        "[on-dm]\ntimeout_s = 0",
        "[on-dm]\ncapability_token_scope = [\"inbox:read\"]",
        "[on-dm]\ncapability_token_scope = [\"topic:*:post\"]",
    ] {
        assert!(HooksFile::parse(refused).is_err(), "{refused}");
    }
    assert_eq!(HooksFile::parse("").unwrap(), HooksFile::default());
}

#[test]
fn sizes_have_units() {
    for (text, bytes) in [
        ("7", 7),
        ("1KiB", 1_024),
        ("2 GB", 2_000_000_000),
        ("3TiB", 3 << 40),
    ] {
        assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
    }
    for text in ["", "GB", "1gb", "-1", "1.5GB", "99999999999TB"] {
        assert_eq!(ByteSize::parse(text), None, "{text}");
    }
}

#[test]
fn cm_140_each_environment_has_the_defaults_of_the_table() {
    let config = DaemonConfig::default();
    let set = |variable: &'static str, value: &'static str| {
        move |name: &str| (name == variable).then(|| value.to_owned())
    };
    let bare = HostEnvironment::detect(set("NONE", ""), false, "0::/init.scope");
    let docker = HostEnvironment::detect(set("NONE", ""), true, "");
    let containerd = HostEnvironment::detect(set("NONE", ""), false, "0::/kubepods/containerd");
    let kubernetes = HostEnvironment::detect(set("KUBERNETES_SERVICE_HOST", "10.0.0.1"), false, "");
    let ci = HostEnvironment::detect(set("CI", "true"), false, "");
    let runpod = HostEnvironment::detect(set("RUNPOD_POD_ID", "p"), false, "");
    for (name, environment, is_persistent, has_tcp, has_hooks, event) in [
        ("bare metal", bare, true, true, true, None),
        ("Docker", docker, true, false, true, None),
        ("another container", containerd, true, false, true, None),
        ("Kubernetes", kubernetes, true, false, true, None),
        ("CI", ci, false, false, false, None),
        (
            "RunPod",
            runpod,
            true,
            false,
            true,
            Some("runpod_persistent_default_assumed"),
        ),
    ] {
        let (mode, logged) = identity(IdentityFlag::Unset, &environment);
        let found = (
            mode == IdentityMode::Persistent,
            config.tcp_enabled(&environment),
            config.hooks_enabled(&environment),
            logged,
        );
        assert_eq!(found, (is_persistent, has_tcp, has_hooks, event), "{name}");
        // Whatever the environment, a flag and a setting decide.
        let chosen = parsed("[ipc]\ntcp_enabled = true\n[hooks]\nenabled = true");
        assert!(chosen.tcp_enabled(&environment) && chosen.hooks_enabled(&environment));
        let (mode, _) = identity(IdentityFlag::Ephemeral, &environment);
        assert_eq!(mode, IdentityMode::Ephemeral, "{name}");
    }
}

#[test]
fn cm_112_the_budget_of_the_fleet_limits_each_of_its_daemons() {
    let config = DaemonConfig::default();
    for (joined, gigabytes) in [(0, 5), (1, 5), (4, 5), (5, 4), (10, 2), (1_000, 2)] {
        let limit = config.disk_limit(joined);
        assert_eq!(limit, ByteSize::gigabytes(gigabytes), "{joined}");
    }
    let small = parsed("[disk]\nreserved_bytes = 7\n[fleet]\ntotal_disk_budget = 40");
    assert_eq!(small.disk_limit(1), ByteSize(7));
    assert_eq!(small.disk_limit(8), ByteSize(5));
}
