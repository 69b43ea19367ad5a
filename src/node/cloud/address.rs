//! The addresses of a VM: on a network of libvirt its DHCP server knows them, on a bridge only the guest's agent does.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Ground;
use super::error::CloudError;
use super::spec::{PREFIX, check_name};
use crate::template::xml::Document;

/// What is known of a VM's addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// `lease` or `agent`: who was asked.
    pub source: String,
    /// `MAC ADDRESS/PREFIX`.
    pub found: Vec<Address>,
    /// Why there are none, and what to look at; empty when there are some.
    pub explanation: String,
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// MAC of the interface.
    pub mac: String,
    /// `ADDRESS/PREFIX`.
    pub address: String,
}

const LIMIT: Duration = Duration::from_secs(30);

/// Asks for the addresses of VM `name`.
///
/// # Errors
/// When there is no such domain, or libvirt does not answer.
pub async fn address(ground: &Ground, name: &str) -> Result<Addresses, CloudError> {
    check_name(name).map_err(CloudError::Refused)?;
    let domain = format!("{PREFIX}{name}");
    let virsh = ground.virsh();
    let xml = virsh
        .run(&["dumpxml", "--domain", &domain], Bytes::new(), LIMIT)
        .await
        .map_err(|reason| CloudError::Program(format!("{reason} (kvmad vm list tells which VMs run)")))?;
    let document = Document::parse(xml).map_err(|error| CloudError::Program(error.to_string()))?;
    let interfaces: Vec<_> =
        document.root().children("devices").flat_map(|all| all.children("interface")).collect();
    if interfaces.iter().any(|interface| interface.attribute("type") == Some("network")) {
        let args = ["domifaddr", "--domain", &domain, "--source", "lease", "--full"];
        let text = virsh.run(&args, Bytes::new(), LIMIT).await.map_err(CloudError::Program)?;
        return Ok(told("lease", leases(&text), NO_LEASE));
    }
    let command = r#"{"execute":"guest-network-get-interfaces"}"#;
    match virsh.guest(&domain, command, Duration::from_secs(5)).await {
        Ok(text) => Ok(told("agent", from_agent(&text), NO_ADDRESS)),
        Err(reason) => Ok(told("agent", Vec::new(), &format!("{NO_AGENT} ({reason})"))),
    }
}

const NO_LEASE: &str = "no lease yet: the guest has not asked for an address. It boots, or its cloud-init did not \
    run; look at its console (kvmad vm console)";
const NO_ADDRESS: &str = "the guest's agent answers, and the guest has no address but its own loopback; look at its \
    console (kvmad vm console)";
const NO_AGENT: &str = "a VM on a bridge has no lease of libvirt, only qemu-guest-agent in the guest can tell its address, \
    and it does not answer: the guest boots, the agent is not installed, or cloud-init could not install it; look at the \
    console (kvmad vm console)";

fn told(source: &str, found: Vec<Address>, none: &str) -> Addresses {
    let explanation = if found.is_empty() { none.to_owned() } else { String::new() };
    Addresses { source: source.to_owned(), found, explanation }
}

/// Rows of `virsh domifaddr --full`: interface, MAC, protocol, address. The words in them are not translated.
fn leases(text: &str) -> Vec<Address> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, mac, protocol, address] = words.as_slice() else { return None };
        (["ipv4", "ipv6"].contains(protocol) && mac.len() == 17)
            .then(|| Address { mac: (*mac).to_owned(), address: (*address).to_owned() })
    };
    text.lines().filter_map(row).collect()
}

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    interfaces: Vec<GuestInterface>,
}

#[derive(Deserialize)]
struct GuestInterface {
    name: String,
    #[serde(rename = "hardware-address", default)]
    mac: String,
    #[serde(rename = "ip-addresses", default)]
    addresses: Vec<GuestAddress>,
}

#[derive(Deserialize)]
struct GuestAddress {
    #[serde(rename = "ip-address")]
    address: String,
    prefix: u8,
}

/// Addresses that others can reach: without loopback and those of the link. A guest may answer anything.
fn from_agent(text: &str) -> Vec<Address> {
    let Ok(answer) = serde_json::from_str::<Answer>(text) else { return Vec::new() };
    let reachable = |address: &GuestAddress| match address.address.parse() {
        Ok(std::net::IpAddr::V4(ip)) => !ip.is_loopback() && !ip.is_link_local(),
        Ok(std::net::IpAddr::V6(ip)) => !ip.is_loopback() && !ip.is_unicast_link_local(),
        Err(_) => false,
    };
    let is_mac = |mac: &str| mac.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
    let interfaces = answer.interfaces.into_iter().filter(|one| one.name != "lo" && is_mac(&one.mac));
    interfaces
        .flat_map(|one| {
            let mac = one.mac;
            let good = one.addresses.into_iter().filter(reachable);
            good.map(move |found| Address {
                mac: mac.clone(),
                address: format!("{}/{}", found.address, found.prefix),
            })
            .collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_leases_are_read_and_other_lines_are_not() {
        let text = " Name       MAC address          Protocol     Address\n-----------------\n \
                    vnet0      52:54:00:aa:bb:01    ipv4         192.168.122.7/24\n \
                    vnet0      52:54:00:aa:bb:01    ipv6         2001:db8::7/64\n\n";
        let found = leases(text);
        assert_eq!(
            found.iter().map(|a| a.address.as_str()).collect::<Vec<_>>(),
            ["192.168.122.7/24", "2001:db8::7/64"]
        );
        assert_eq!(found[0].mac, "52:54:00:aa:bb:01");
    }

    #[test]
    fn the_agents_answer_gives_reachable_addresses_only() {
        let text = r#"{"return":[{"name":"lo","ip-addresses":[{"ip-address":"127.0.0.1","ip-address-type":"ipv4","prefix":8}]},
            {"name":"eth0","hardware-address":"52:54:00:aa:bb:01","ip-addresses":[
              {"ip-address":"192.0.2.7","ip-address-type":"ipv4","prefix":24},
              {"ip-address":"fe80::1","ip-address-type":"ipv6","prefix":64},
              {"ip-address":"\u001b[2J","ip-address-type":"ipv4","prefix":24}]},
            {"name":"x","hardware-address":"zz","ip-addresses":[{"ip-address":"192.0.2.8","ip-address-type":"ipv4","prefix":24}]}]}"#;
        let found = from_agent(text);
        assert_eq!(
            found,
            [Address { mac: "52:54:00:aa:bb:01".to_owned(), address: "192.0.2.7/24".to_owned() }]
        );
        assert!(from_agent("{}").is_empty() && from_agent("").is_empty());
    }
}
