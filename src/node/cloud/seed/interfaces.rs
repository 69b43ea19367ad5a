//! `network-config` of the seed, version 2 of cloud-init's form.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use super::yaml;
use crate::node::cloud::error::CloudError;
use crate::node::cloud::spec::Interface;

#[derive(Serialize)]
struct Config {
    version: u8,
    ethernets: BTreeMap<String, Ethernet>,
}

#[derive(Serialize)]
struct Ethernet {
    #[serde(rename = "match")]
    found_by: Match,
    dhcp4: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nameservers: Option<Nameservers>,
}

#[derive(Serialize)]
struct Match {
    macaddress: String,
}

#[derive(Serialize)]
struct Route {
    to: &'static str,
    via: String,
}

#[derive(Serialize)]
struct Nameservers {
    addresses: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    search: Vec<String>,
}

/// The text of `network-config`. Routes are written as networks (`0.0.0.0/0`), which old versions of cloud-init
/// understand too.
///
/// # Errors
/// What is wrong with an address.
pub fn network_config(interfaces: &[Interface]) -> Result<String, CloudError> {
    let mut ethernets = BTreeMap::new();
    for (number, interface) in interfaces.iter().enumerate() {
        for address in &interface.addresses {
            check_address(address).map_err(CloudError::Refused)?;
        }
        ethernets.insert(format!("nic{number}"), ethernet(interface));
    }
    yaml(&Config { version: 2, ethernets })
}

fn ethernet(interface: &Interface) -> Ethernet {
    let route = |gateway: &IpAddr| Route {
        to: if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" },
        via: gateway.to_string(),
    };
    let resolvers: Vec<String> = interface.resolvers.iter().map(IpAddr::to_string).collect();
    let search = interface.search.clone();
    Ethernet {
        found_by: Match { macaddress: interface.mac.to_ascii_lowercase() },
        dhcp4: interface.addresses.is_empty(),
        addresses: interface.addresses.clone(),
        routes: interface.gateways.iter().map(route).collect(),
        nameservers: (!resolvers.is_empty() || !search.is_empty())
            .then_some(Nameservers { addresses: resolvers, search }),
    }
}

/// Whether `text` is `ADDRESS/PREFIX`.
///
/// # Errors
/// What it must look like.
pub fn check_address(text: &str) -> Result<(), String> {
    let good = text.split_once('/').and_then(|(address, prefix)| {
        let most = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
        prefix.parse::<u8>().ok().filter(|prefix| (1..=most).contains(prefix))
    });
    good.map(|_| ()).ok_or_else(|| format!("{text:?} is no address with its prefix, such as 192.0.2.7/24"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> serde_json::Value {
        serde_saphyr::from_str(text).expect("YAML")
    }

    #[test]
    fn a_static_interface_has_its_address_its_route_and_only_the_given_resolvers() {
        let text = network_config(&[Interface {
            mac: "52:54:00:AB:00:01".to_owned(),
            addresses: vec!["192.0.2.7/24".to_owned(), "2001:db8::7/64".to_owned()],
            gateways: vec![
                "192.0.2.1".parse().expect("an address"),
                "2001:db8::1".parse().expect("an address"),
            ],
            resolvers: vec!["9.9.9.9".parse().expect("an address")],
            search: vec!["example.org".to_owned()],
        }])
        .expect("a text");
        assert_eq!(
            read(&text),
            serde_json::json!({"version": 2, "ethernets": {"nic0": {
                "match": {"macaddress": "52:54:00:ab:00:01"},
                "dhcp4": false,
                "addresses": ["192.0.2.7/24", "2001:db8::7/64"],
                "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}, {"to": "::/0", "via": "2001:db8::1"}],
                "nameservers": {"addresses": ["9.9.9.9"], "search": ["example.org"]},
            }}}),
            "{text}"
        );
    }

    #[test]
    fn an_interface_without_address_uses_dhcp_and_its_resolvers() {
        let text =
            network_config(&[Interface { mac: "52:54:00:00:00:01".to_owned(), ..Interface::default() }]);
        let nic = &read(&text.expect("a text"))["ethernets"]["nic0"];
        assert_eq!(*nic, serde_json::json!({"match": {"macaddress": "52:54:00:00:00:01"}, "dhcp4": true}));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["192.0.2.7", "192.0.2.7/33", "192.0.2.7/0", "a/24", "2001:db8::7/129", "192.0.2.7/24\nx: y"]
        {
            assert!(check_address(text).is_err(), "{text}");
        }
    }
}
