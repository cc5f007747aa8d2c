//! The published fingerprint, and which interface is used.

use super::*;

fn interface(name: &str, first: u8) -> NetworkInterface {
    NetworkInterface {
        name: name.to_owned(),
        mac: [first, 0x54, 0x00, 0x12, 0x34, 0x56],
    }
}

fn chosen(interfaces: &[(&str, u8)]) -> Option<String> {
    let interfaces: Vec<_> = interfaces
        .iter()
        .map(|(name, first)| interface(name, *first))
        .collect();
    stable_mac(&interfaces).map(|mac| mac[..2].to_owned())
}

fn identity(host_id: &str, mac: &str) -> HostIdentity {
    HostIdentity {
        host_id: host_id.to_owned(),
        stable_mac: mac.to_owned(),
    }
}

#[test]
fn the_published_fingerprint_is_reproduced() {
    let identity = identity(
        "linux:0123456789abcdef0123456789abcdef",
        "52:54:00:12:34:56",
    );
    let expected = "b6e9c4abfccc807d9ae63fe7e0dbe64111b7fc97d7c38eeebe10a9f883842d9a";
    assert_eq!(identity.fingerprint(), expected);
    let record = serde_json::to_value(identity.to_record("2026-01-01T00:00:00.000Z")).unwrap();
    assert_eq!(record["schema_version"], 2);
    assert_eq!(record["fingerprint"], expected);
}

#[test]
fn cm_017_tunnels_containers_and_local_addresses_are_not_used() {
    for excluded in EXCLUDED {
        assert_eq!(
            chosen(&[(excluded, 0x00), ("eth0", 0x10)]).as_deref(),
            Some("10"),
            "{excluded}"
        );
        assert_eq!(chosen(&[(excluded, 0x00)]), None, "{excluded}");
    }
    assert_eq!(
        chosen(&[("eth0", 0x52), ("wlan0", 0x10)]).as_deref(),
        Some("10")
    );
    // A local address is better than none.
    assert_eq!(chosen(&[("eth0", 0x52)]).as_deref(), Some("52"));
    assert_eq!(
        chosen(&[("wlan0", 0x10), ("eth1", 0x20), ("eth0", 0x30)]).as_deref(),
        Some("30")
    );
    let empty = NetworkInterface {
        name: "eth0".to_owned(),
        mac: [0; 6],
    };
    assert_eq!(stable_mac(&[empty]), None);
}

#[test]
fn cm_017_an_equal_host_id_is_the_same_machine() {
    let record = identity("linux:a", "10:00").to_record("");
    assert_eq!(
        record.compare(&identity("linux:a", "10:00")),
        HostMatch::Same
    );
    assert_eq!(
        record.compare(&identity("linux:a", "20:00")),
        HostMatch::SameWithOtherMac
    );
    assert_eq!(
        record.compare(&identity("linux:b", "10:00")),
        HostMatch::Other
    );
    let unknown = identity("", "10:00").to_record("");
    assert_eq!(unknown.compare(&identity("", "20:00")), HostMatch::Other);
}

#[test]
fn without_an_id_the_address_counts_and_without_both_nothing() {
    let new = |host_id: Option<&str>, mac: Option<&str>| {
        let owned = |text: &str| text.to_owned();
        HostIdentity::new(host_id.map(owned), mac.map(owned), || "random".to_owned())
    };
    assert_eq!(new(Some("linux:a"), None), (identity("linux:a", ""), None));
    let by_mac = (
        identity("10:00", "10:00"),
        Some("fingerprint_host_id_unavailable"),
    );
    assert_eq!(new(None, Some("10:00")), by_mac);
    assert_eq!(
        new(None, None),
        (identity("random", ""), Some("fingerprint_unavailable"))
    );
}
