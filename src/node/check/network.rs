//! Bridges and libvirt's network behind NAT.

use std::time::Duration;

use bytes::Bytes;

use super::host::Host;
use super::{Check, Finding, Group, Verdict};
use crate::node::root::Root;
use crate::node::tools::Ask;

const GROUP: Group = Group::Cloud;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "bridge",
        group: GROUP,
        what: "Every bridge that is asked for (--bridge) is there.",
        why: "libvirt refuses a VM whose bridge is not there. (OpenNebula's network drivers make their bridges themselves.)",
        mend: "netplan: bridges: {br0: {interfaces: [NIC], addresses: [...]}}, then `netplan try`; or NetworkManager: nmcli con add type bridge ifname br0; or use NAT.",
    },
    Check {
        id: "bridge-port",
        group: GROUP,
        what: "Every bridge has a port that leads out of the host.",
        why: "A bridge without one passes no traffic to the network: VMs on it are cut off.",
        mend: "ip link set NIC master BRIDGE, and the same in the configuration (netplan, NetworkManager).",
    },
    Check {
        id: "bridge-wireless",
        group: GROUP,
        what: "No port of a bridge is wireless.",
        why: "Access points drop frames from addresses other than the station's own: VMs behind it get no answer.",
        mend: "Use a wired NIC, or NAT.",
    },
    Check {
        id: "bridge-autoconnect",
        group: GROUP,
        what: "Where NetworkManager runs, the profiles of the bridges' ports connect automatically.",
        why: "Otherwise the bridge is without its port after the next start of the host.",
        mend: "nmcli con mod PROFILE connection.autoconnect yes",
    },
    Check {
        id: "nat-network",
        group: GROUP,
        what: "The libvirt network for NAT is there, active, and starts by itself.",
        why: "VMs behind NAT do not start without it.",
        mend: "virsh net-start default; virsh net-autostart default",
    },
];

/// All of them.
pub async fn all(host: &Host) -> Vec<Finding> {
    let mut all = bridges(host);
    all.push(autoconnect(host).await);
    all.push(nat(host).await);
    all
}

/// What a port of a bridge is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    /// A NIC, or something over one (bond, VLAN).
    Out,
    /// A link to elsewhere that is no hardware (veth, tunnel).
    Link,
    /// A VM's own.
    Vm,
    /// A wireless NIC.
    Wireless,
}

fn kind(root: &Root, name: &str) -> Port {
    let at = |file: &str| root.exists(format!("/sys/class/net/{name}/{file}"));
    if at("wireless") || at("phy80211") {
        Port::Wireless
    } else if at("tun_flags") || name.starts_with("vnet") || name.starts_with("one-") {
        Port::Vm
    } else if at("device")
        || root.names(format!("/sys/class/net/{name}")).iter().any(|n| n.starts_with("lower_"))
    {
        Port::Out
    } else {
        Port::Link
    }
}

/// Names of the host's bridges, without those that libvirt made for its own networks.
fn present(root: &Root) -> Vec<String> {
    let is_bridge = |name: &String| root.exists(format!("/sys/class/net/{name}/bridge"));
    let own = |name: &String| name.starts_with("virbr") || name.starts_with("docker");
    root.names("/sys/class/net").into_iter().filter(|name| is_bridge(name) && !own(name)).collect()
}

fn bridges(host: &Host) -> Vec<Finding> {
    let root = &host.root;
    let asked = &host.wanted.bridges;
    let there = present(root);
    let missing: Vec<&str> = asked
        .iter()
        .filter(|name| !root.exists(format!("/sys/class/net/{name}/bridge")))
        .map(String::as_str)
        .collect();
    let mut all = vec![bridge(root, asked, &there, &missing)];
    let looked: Vec<&String> = if asked.is_empty() {
        there.iter().collect()
    } else {
        asked.iter().filter(|name| !missing.contains(&name.as_str())).collect()
    };
    if looked.is_empty() {
        let none = "there is no bridge to look at";
        all.extend(["bridge-port", "bridge-wireless"].map(|id| Finding::skipped(id, GROUP, none)));
        return all;
    }
    let ports: Vec<(&str, Vec<(String, Port)>)> = looked
        .iter()
        .map(|name| {
            let names = root.names(format!("/sys/class/net/{name}/brif"));
            (name.as_str(), names.into_iter().map(|port| (port.clone(), kind(root, &port))).collect())
        })
        .collect();
    all.push(ports_out(root, &ports));
    all.push(wireless(&ports));
    all
}

fn bridge(root: &Root, asked: &[String], there: &[String], missing: &[&str]) -> Finding {
    let list = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    if asked.is_empty() {
        let evidence = format!("no --bridge was asked for; there are: {list}");
        return Finding::skipped("bridge", GROUP, evidence);
    }
    if missing.is_empty() {
        return Finding::ok("bridge", GROUP, format!("there: {}", asked.join(", ")));
    }
    let evidence = format!("not there: {}; bridges of this host: {list}", missing.join(", "));
    Finding::bad("bridge", GROUP, Verdict::Failure, evidence, example(root, missing[0]))
}

/// How a bridge over the host's NIC is made, in the two usual ways.
fn example(root: &Root, bridge: &str) -> String {
    let nics = root.names("/sys/class/net");
    let nic = nics
        .iter()
        .find(|name| root.exists(format!("/sys/class/net/{name}/device")) && kind(root, name) == Port::Out);
    let nic = nic.map_or("NIC", String::as_str);
    format!(
        "netplan, in /etc/netplan/60-{bridge}.yaml, with the host's own address (netplan try takes it back by itself when the \
         connection is lost):\n\
         network:\n  version: 2\n  ethernets:\n    {nic}: {{dhcp4: false}}\n  bridges:\n    {bridge}:\n      \
         interfaces: [{nic}]\n      addresses: [ADDRESS/PREFIX]\n      routes: [{{to: default, via: GATEWAY}}]\n\
         NetworkManager:\nnmcli con add type bridge con-name {bridge} ifname {bridge} ipv4.method manual ipv4.addresses \
         ADDRESS/PREFIX ipv4.gateway GATEWAY\nnmcli con add type ethernet con-name {bridge}-port ifname {nic} master {bridge} \
         connection.autoconnect yes\nor use NAT."
    )
}

fn ports_out(root: &Root, bridges: &[(&str, Vec<(String, Port)>)]) -> Finding {
    let id = "bridge-port";
    let leads_out = |ports: &[(String, Port)]| ports.iter().any(|(_, kind)| *kind != Port::Vm);
    let bad: Vec<&str> =
        bridges.iter().filter(|(_, ports)| !leads_out(ports)).map(|(name, _)| *name).collect();
    if let Some(first) = bad.first() {
        let evidence = format!("without a port that leads out: {}", bad.join(", "));
        let mend = format!("ip link set NIC master {first}; to last: {}", example(root, first));
        return Finding::bad(id, GROUP, Verdict::Warning, evidence, mend);
    }
    let shown = bridges.iter().map(|(name, ports)| {
        let out = ports.iter().filter(|(_, kind)| *kind != Port::Vm);
        let out = out.map(|(port, kind)| match kind {
            Port::Link => format!("{port} (no hardware: a link)"),
            _ => port.clone(),
        });
        format!("{name}: {}", out.collect::<Vec<_>>().join(", "))
    });
    Finding::ok(id, GROUP, shown.collect::<Vec<_>>().join("; "))
}

fn wireless(bridges: &[(&str, Vec<(String, Port)>)]) -> Finding {
    let id = "bridge-wireless";
    for (bridge, ports) in bridges {
        if let Some((port, _)) = ports.iter().find(|(_, kind)| *kind == Port::Wireless) {
            let evidence = format!("{port} is wireless and a port of {bridge}");
            let mend = format!("ip link set {port} nomaster; use a wired NIC as port of {bridge}, or NAT");
            return Finding::bad(id, GROUP, Verdict::Failure, evidence, mend);
        }
    }
    Finding::ok(id, GROUP, "no port is wireless")
}

async fn autoconnect(host: &Host) -> Finding {
    let id = "bridge-autoconnect";
    if !host.root.exists("/run/NetworkManager") {
        return Finding::skipped(id, GROUP, "NetworkManager does not run");
    }
    let limit = Duration::from_secs(10);
    let words = ["-t", "-e", "no", "-f", "AUTOCONNECT,DEVICE,NAME", "connection", "show", "--active"];
    let told =
        host.tools.ask(Ask::new("nmcli", words, limit)).await.and_then(|answer| answer.good("nmcli", limit));
    let told = match told {
        Ok(told) => told,
        Err(reason) => return Finding::unchecked(id, GROUP, reason, "nmcli connection show --active"),
    };
    let ports: Vec<String> = present(&host.root)
        .iter()
        .flat_map(|name| host.root.names(format!("/sys/class/net/{name}/brif")))
        .collect();
    for line in told.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(auto), Some(device), Some(profile)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if auto == "no" && ports.iter().any(|port| port == device) {
            let evidence =
                format!("profile {profile:?} of {device}, a bridge's port, does not connect automatically");
            let mend = format!("nmcli con mod {} connection.autoconnect yes", shell_words::quote(profile));
            return Finding::bad(id, GROUP, Verdict::Warning, evidence, mend);
        }
    }
    Finding::ok(id, GROUP, "no port's profile waits for a person")
}

async fn nat(host: &Host) -> Finding {
    let (id, name) = ("nat-network", host.wanted.network.as_str());
    let list = |more: &'static [&'static str]| async move {
        let mut words = vec!["net-list", "--name"];
        words.extend(more);
        let told = host.virsh.run(&words, Bytes::new(), Duration::from_secs(20)).await?;
        Ok::<bool, String>(told.lines().any(|line| line.trim() == name))
    };
    let quoted = shell_words::quote(name).into_owned();
    let asked = async {
        Ok::<_, String>((list(&["--all"]).await?, list(&[]).await?, list(&["--all", "--autostart"]).await?))
    };
    let (evidence, mend) = match asked.await {
        Err(reason) => return Finding::unchecked(id, GROUP, reason, "see the check libvirt"),
        Ok((false, ..)) => (
            format!("there is no libvirt network {name}"),
            "virsh net-define /usr/share/libvirt/networks/default.xml (package libvirt-daemon-config-network); virsh net-start default; virsh net-autostart default".to_owned(),
        ),
        Ok((true, false, auto)) => (
            format!("the libvirt network {name} is not active{}", if auto { "" } else { ", and does not start by itself" }),
            format!("virsh net-start {quoted}; virsh net-autostart {quoted}"),
        ),
        Ok((true, true, false)) => (
            format!("the libvirt network {name} does not start by itself"),
            format!("virsh net-autostart {quoted}"),
        ),
        Ok((true, true, true)) => return Finding::ok(id, GROUP, format!("{name} is active and starts by itself")),
    };
    Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
}
