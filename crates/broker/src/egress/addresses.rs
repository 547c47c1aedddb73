//! IP addresses that the broker refuses to call. Pure.
//!
//! IPv4 addresses are checked against a list of special ranges. Of IPv6 only global unicast space is eligible, less
//! the special ranges in it; an address that embeds an IPv4 address is judged by that one. Sources: IANA IPv4 and IPv6
//! Special-Purpose Address Registries (RFC 6890, RFC 8190), RFC 6052 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), RFC
//! 9637 (documentation).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Special IPv4 ranges as (network, prefix length in bits, label).
const SPECIAL_V4: [(Ipv4Addr, u32, &str); 17] = [
    (Ipv4Addr::UNSPECIFIED, 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    // A public address that inside Azure answers as the platform's own agent.
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud platform"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local or cloud metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignment"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::BROADCAST, 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

/// Special IPv6 ranges; the first match decides. Teredo is handled before this table.
const SPECIAL_V6: [(Ipv6Addr, u32, &str); 13] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (v6([0x64, 0xff9b, 1, 0]), 48, "local-use translation"),
    (v6([0x100, 0, 0, 0]), 64, "discard-only"),
    (v6([0x2001, 0x2, 0, 0]), 48, "benchmarking"),
    (v6([0x2001, 0xdb8, 0, 0]), 32, "documentation"),
    (v6([0x2001, 0, 0, 0]), 23, "protocol assignment"),
    (v6([0x3fff, 0, 0, 0]), 20, "documentation"),
    (v6([0x5f00, 0, 0, 0]), 16, "segment routing"),
    (v6([0xfc00, 0, 0, 0]), 7, "unique local"),
    (v6([0xfe80, 0, 0, 0]), 10, "link-local"),
    (v6([0xfec0, 0, 0, 0]), 10, "site-local"),
    (v6([0xff00, 0, 0, 0]), 8, "multicast"),
];

const fn v6(head: [u16; 4]) -> Ipv6Addr {
    Ipv6Addr::new(head[0], head[1], head[2], head[3], 0, 0, 0, 0)
}

/// Names the special range that contains an address; `None` for an ordinary public address.
///
/// An IPv4-mapped address counts as the IPv4 address that it holds, as in the operating system. NAT64 (64:ff9b::/96),
/// 6to4 and Teredo addresses are special when an embedded address is.
pub(super) fn special_range(ip: IpAddr) -> Option<&'static str> {
    match ip.to_canonical() {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => {
            let inside = embedded_v4(v6);
            if inside.is_empty() { special_v6(v6) } else { inside.into_iter().find_map(special_v4) }
        }
    }
}

/// The IPv4 addresses that traffic to this IPv6 address reaches or passes through.
///
/// One for NAT64 and 6to4, two for Teredo (server, client), otherwise none. The local-use NAT64 prefix 64:ff9b:1::/48
/// is not decoded: each site chooses where the IPv4 address sits in it (RFC 8215), so such addresses are special as a
/// whole.
pub(super) fn embedded_v4(ip: Ipv6Addr) -> Vec<Ipv4Addr> {
    let low = Ipv4Addr::from_bits(ip.to_bits() as u32);
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![low],
        [0x2002, high, next, ..] => {
            vec![Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(next))]
        }
        [0x2001, 0, high, next, ..] => vec![
            Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(next)),
            Ipv4Addr::from_bits(!low.to_bits()),
        ],
        _ => Vec::new(),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    SPECIAL_V4
        .iter()
        .find(|(network, prefix, _)| {
            let mask = u32::MAX << (32 - prefix);
            ip.to_bits() & mask == network.to_bits()
        })
        .map(|(_, _, name)| *name)
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let named = SPECIAL_V6
        .iter()
        .find(|(network, prefix, _)| {
            let mask = u128::MAX << (128 - prefix);
            ip.to_bits() & mask == network.to_bits()
        })
        .map(|(_, _, name)| *name);
    // 2000::/3 is all of IPv6 that is allocated as global unicast.
    let global = ip.segments()[0] & 0xe000 == 0x2000;
    named.or((!global).then_some("unallocated"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judge(text: &str) -> Option<&'static str> {
        special_range(text.parse().expect("an address"))
    }

    #[test]
    fn special_addresses_are_named() {
        let rows = [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "carrier-grade NAT"),
            ("100.100.100.200", "carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "cloud platform"),
            ("169.254.169.254", "link-local or cloud metadata"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "protocol assignment"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relay"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.255.255", "benchmarking"),
            ("198.51.100.9", "documentation"),
            ("203.0.113.9", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::127.0.0.1", "unallocated"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:169.254.169.254", "link-local or cloud metadata"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::a9fe:a9fe", "link-local or cloud metadata"),
            ("64:ff9b:1::808:808", "local-use translation"),
            ("100::1", "discard-only"),
            ("2001:2::1", "benchmarking"),
            ("2001:10::1", "protocol assignment"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "loopback"),
            ("2002:c0a8:101::1", "private"),
            // Teredo with a private server, then with a loopback client (bits inverted).
            ("2001:0:a00:1::f7f7:f7f7", "private"),
            ("2001:0:808:808::80ff:fffe", "loopback"),
            ("3fff::1", "documentation"),
            ("3fff:fff::1", "documentation"),
            ("4000::1", "unallocated"),
            ("5f00::1", "segment routing"),
            ("fc00::1", "unique local"),
            ("fd00:ec2::254", "unique local"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
        ];
        for (text, name) in rows {
            assert_eq!(judge(text), Some(name), "{text}");
        }
    }

    #[test]
    fn ordinary_addresses_pass_right_up_to_the_edges() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2002:808:808::1",
            "2001:0:808:808::f7f7:f7f7",
            "2606:4700:4700::1111",
            "3ffe:ffff::1",
        ] {
            assert_eq!(judge(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_disguise_of_an_ipv4_address_is_judged_by_it(bits in any::<u32>()) {
            let plain = Ipv4Addr::from_bits(bits);
            let expected = special_v4(plain);
            let nat64 = (0x64_ff9b_u128 << 96) | u128::from(bits);
            let six_to_four = (0x2002_u128 << 112) | (u128::from(bits) << 80) | 1;
            prop_assert_eq!(special_range(plain.to_ipv6_mapped().into()), expected);
            prop_assert_eq!(special_range(Ipv6Addr::from_bits(nat64).into()), expected);
            prop_assert_eq!(special_range(Ipv6Addr::from_bits(six_to_four).into()), expected);
        }
    }
}
