//! Which IP addresses belong to the public internet.
//!
//! Invariant: an address that carries an IPv4 address inside is public only if that one is. IPv6 is a list of what is
//! public: global unicast without its special ranges. IPv4 is a list of what is not, from the registry of special-purpose
//! addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let is_special = match ip.octets() {
        // "This network", private, loopback.
        [0 | 10 | 127, ..] => true,
        // Shared between a provider and its customers.
        [100, second, ..] => second & 0xc0 == 64,
        [169, 254, ..] => true,
        [172, second, ..] => second & 0xf0 == 16,
        // Protocol assignments, documentation, the former relay of 6to4, private.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [192, 168, ..] => true,
        // Benchmarks, documentation.
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // IPv4-mapped, and NAT64, by which networks without IPv4 reach it.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            is_public_v4(embedded(high, low))
        }
        // 6to4.
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        // Protocol assignments (Teredo, benchmarks, ORCHID), documentation.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // Global unicast. Outside of it are loopback, IPv4-compatible, unique-local, link-local, multicast and the rest.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_the_registry_ends_them() {
        // The first and the last address of each range, and their neighbours outside.
        let ranges: &[(&str, &str, &str, &str)] = &[
            ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
            ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
            (
                "100.63.255.255",
                "100.64.0.0",
                "100.127.255.255",
                "100.128.0.0",
            ),
            (
                "126.255.255.255",
                "127.0.0.0",
                "127.255.255.255",
                "128.0.0.0",
            ),
            (
                "169.253.255.255",
                "169.254.0.0",
                "169.254.255.255",
                "169.255.0.0",
            ),
            (
                "172.15.255.255",
                "172.16.0.0",
                "172.31.255.255",
                "172.32.0.0",
            ),
            ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
            ("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"),
            (
                "192.88.98.255",
                "192.88.99.0",
                "192.88.99.255",
                "192.88.100.0",
            ),
            (
                "192.167.255.255",
                "192.168.0.0",
                "192.168.255.255",
                "192.169.0.0",
            ),
            (
                "198.17.255.255",
                "198.18.0.0",
                "198.19.255.255",
                "198.20.0.0",
            ),
            (
                "198.51.99.255",
                "198.51.100.0",
                "198.51.100.255",
                "198.51.101.0",
            ),
            (
                "203.0.112.255",
                "203.0.113.0",
                "203.0.113.255",
                "203.0.114.0",
            ),
            ("223.255.255.255", "224.0.0.0", "255.255.255.255", ""),
            ("2000:ffff::", "2001::", "2001:1ff:ffff::", "2001:200::"),
            (
                "2001:db7:ffff::",
                "2001:db8::",
                "2001:db8:ffff::",
                "2001:db9::",
            ),
            ("3ffe:ffff::", "3fff::", "3fff:fff:ffff::", "3fff:1000::"),
            ("3fff:ffff::", "4000::", "ffff::", ""),
            ("", "::", "1fff:ffff::", "2000::"),
        ];
        for &(before, first, last, after) in ranges {
            for (text, expected) in [(before, true), (first, false), (last, false), (after, true)] {
                if !text.is_empty() {
                    assert_eq!(is_public(text.parse().unwrap()), expected, "{text}");
                }
            }
        }
    }

    #[test]
    fn an_ipv4_address_inside_of_ipv6_counts() {
        for (text, expected) in [
            ("::ffff:8.8.8.8", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::8.8.8.8", true),
            ("64:ff9b::10.0.0.1", false),
            ("2002:808:808::1", true),
            ("2002:7f00:1::1", false),
            ("2002:a9fe:a9fe::", false),
            // Forms without a public use.
            ("::8.8.8.8", false),
            ("::127.0.0.1", false),
            ("::ffff:0:8.8.8.8", false),
            ("64:ff9b:1::8.8.8.8", false),
            ("2001:0:808:808::", false),
        ] {
            assert_eq!(is_public(text.parse().unwrap()), expected, "{text}");
        }
    }
}
