//! What the first start records, and what another machine may do.

use std::fs;

use super::*;
use crate::daemon::log::{MeshLogLevel, MeshLogOptions};

struct World {
    folder: tempfile::TempDir,
    root: MachineRoot,
    log: DaemonLog,
    metrics: DaemonMetrics,
}

impl World {
    fn new() -> Self {
        consign_testkit::plants::from_environment();
        let folder = tempfile::tempdir().unwrap();
        let log = DaemonLog::open(MeshLogOptions {
            mesh: "team".to_owned(),
            level: MeshLogLevel::Debug,
            file: Some(folder.path().join("daemon.log")),
            on_stderr: false,
        });
        Self {
            root: MachineRoot::at(folder.path().join("machine")),
            log: log.unwrap(),
            metrics: DaemonMetrics::new("team"),
            folder,
        }
    }

    fn machine(&self, id: &str, mac: &str) {
        let root = self.folder.path().join("machine");
        let _ = fs::remove_dir_all(&root);
        for (path, text) in [("etc/machine-id", id), ("sys/class/net/eth0/address", mac)] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn check(
        &self,
        policy: CloneMismatch,
        id_override: Option<&str>,
    ) -> Result<HostIdentity, HostCheckError> {
        check_host(&self.options(policy, id_override), &self.log, &self.metrics)
    }

    fn options<'a>(&'a self, policy: CloneMismatch, id_override: Option<&'a str>) -> HostCheck<'a> {
        HostCheck {
            directory: self.folder.path(),
            root: &self.root,
            id_override,
            policy,
        }
    }

    fn record(&self) -> Option<HostRecord> {
        let text = private_file::read(&self.folder.path().join(HOST_FILE)).unwrap()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    fn logged(&self, event: &str) -> bool {
        let text = fs::read_to_string(self.folder.path().join("daemon.log")).unwrap();
        text.contains(&format!("\"msg\":\"{event}\""))
    }
}

const ETH: &str = "10:54:00:12:34:56";

#[test]
fn cm_015_the_first_start_records_the_machine_and_another_one_is_refused() {
    let world = World::new();
    world.machine("aaaa", ETH);
    world.check(CloneMismatch::Refuse, None).unwrap();
    let record = world.record().unwrap();
    assert_eq!(record.schema_version, 2);
    assert_eq!(record.host_id, "linux:aaaa");
    assert_eq!(record.stable_mac, ETH);
    let mode = private_file::mode(&world.folder.path().join(HOST_FILE));
    assert_eq!(mode.unwrap(), Some(PRIVATE));
    world.check(CloneMismatch::Refuse, None).unwrap();
    world.machine("bbbb", ETH);
    let refusal = world.check(CloneMismatch::Refuse, None).unwrap_err();
    let text = refusal.to_string();
    assert!(
        text.contains("daemon accept-host") && text.contains("daemon remint"),
        "{text}"
    );
    assert_eq!(world.record().unwrap(), record);
    assert_eq!(world.metrics.get(DaemonMetric::CloneSuspected, &[]), 1);
    accept_host(&world.options(CloneMismatch::Refuse, None), &world.log).unwrap();
    world.check(CloneMismatch::Refuse, None).unwrap();
    assert_eq!(world.record().unwrap().host_id, "linux:bbbb");
}

#[test]
fn cm_016_other_policies_start_on_another_machine() {
    let world = World::new();
    world.machine("aaaa", ETH);
    world.check(CloneMismatch::Refuse, None).unwrap();
    let record = world.record();
    world.machine("bbbb", ETH);
    world.check(CloneMismatch::Allow, None).unwrap();
    world.check(CloneMismatch::Warn, None).unwrap();
    assert!(world.logged("host_fingerprint_mismatch"));
    assert_eq!(world.record(), record, "only an operator accepts a machine");
}

#[test]
fn cm_017_an_equal_id_with_another_network_card_is_recorded() {
    let world = World::new();
    world.machine("aaaa", ETH);
    world.check(CloneMismatch::Refuse, None).unwrap();
    world.machine("aaaa", "10:00:00:00:00:99");
    world.check(CloneMismatch::Refuse, None).unwrap();
    assert_eq!(world.record().unwrap().stable_mac, "10:00:00:00:00:99");
}

#[test]
fn a_changed_override_is_another_machine() {
    let world = World::new();
    world.machine("aaaa", ETH);
    world.check(CloneMismatch::Refuse, Some("rack-7")).unwrap();
    assert_eq!(world.record().unwrap().host_id, "rack-7");
    world.machine("bbbb", ETH);
    world.check(CloneMismatch::Refuse, Some("rack-7")).unwrap();
    world
        .check(CloneMismatch::Refuse, Some("rack-8"))
        .unwrap_err();
}

#[test]
fn cm_018_a_machine_without_id_or_address_starts_and_logs_it() {
    let world = World::new();
    world.check(CloneMismatch::Refuse, None).unwrap();
    assert!(world.logged("fingerprint_unavailable"));
    world.check(CloneMismatch::Refuse, None).unwrap();
    world.machine("", ETH);
    world.check(CloneMismatch::Refuse, None).unwrap();
    assert!(world.logged("fingerprint_host_id_unavailable"));
    assert_eq!(world.record().unwrap().host_id, ETH);
    world.check(CloneMismatch::Refuse, None).unwrap();
}

#[test]
fn a_malformed_record_is_refused_until_the_machine_is_accepted() {
    let world = World::new();
    world.machine("aaaa", ETH);
    fs::write(world.folder.path().join(HOST_FILE), "{").unwrap();
    let refusal = world.check(CloneMismatch::Refuse, None).unwrap_err();
    assert!(refusal.to_string().contains("daemon accept-host"));
    accept_host(&world.options(CloneMismatch::Refuse, None), &world.log).unwrap();
    world.check(CloneMismatch::Refuse, None).unwrap();
}
