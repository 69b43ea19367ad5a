//! Where an interface goes: a bridge that is there, or a network of libvirt that is started.

use std::time::Duration;

use bytes::Bytes;

use super::Ground;
use super::error::CloudError;
use super::spec::Network;
use crate::node::root::Root;

const LIMIT: Duration = Duration::from_secs(60);

/// Checks `network`, and starts that of libvirt when it is not active.
///
/// # Errors
/// What is missing, and what to do.
pub async fn check(ground: &Ground, network: &Network) -> Result<(), CloudError> {
    match network {
        Network::Bridge(name) => {
            if let Some(warning) = bridge(&ground.root, name)? {
                ground.say(&warning);
            }
            Ok(())
        }
        Network::Nat(name) => libvirt(ground, name).await,
    }
}

/// A bridge of the host; the text is a warning about it.
fn bridge(root: &Root, name: &str) -> Result<Option<String>, CloudError> {
    check_name(name, 15)?;
    let folder = format!("/sys/class/net/{name}");
    if !root.exists(&folder) {
        return Err(CloudError::Refused(format!(
            "bridge {name} does not exist on this host: create it and make the NIC a port of it (ip link add {name} type \
             bridge; ip link set NIC master {name}; or in netplan, nmcli), or use a NAT network (--network nat)"
        )));
    }
    if !root.exists(format!("{folder}/bridge")) {
        return Err(CloudError::Refused(format!(
            "{name} of this host is no bridge but another interface: make a bridge with it as port, or use a NAT network"
        )));
    }
    let ports = root.names(format!("{folder}/brif"));
    let wireless = ports.iter().find(|port| root.exists(format!("/sys/class/net/{port}/wireless")));
    if let Some(port) = wireless {
        return Err(CloudError::Refused(format!(
            "{port}, a port of bridge {name}, is a wireless interface: access points drop what guests send; use a NAT network"
        )));
    }
    // Taps of guests have this file.
    let leads_out = |port: &&String| !root.exists(format!("/sys/class/net/{port}/tun_flags"));
    if ports.iter().find(leads_out).is_none() {
        return Ok(Some(format!(
            "WARNING: bridge {name} has no port but those of guests: it passes no traffic to the network (ip link set NIC master {name})"
        )));
    }
    Ok(None)
}

async fn libvirt(ground: &Ground, name: &str) -> Result<(), CloudError> {
    check_name(name, 100)?;
    let virsh = ground.virsh();
    let ask = |args: Vec<String>| {
        let virsh = virsh.clone();
        async move {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            virsh.run(&args, Bytes::new(), LIMIT).await.map_err(CloudError::Program)
        }
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let has = |text: &str| text.lines().any(|line| line.trim() == name);
    let all = ask(words(&["net-list", "--all", "--name"])).await?;
    if !has(&all) {
        let there: Vec<&str> = all.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        return Err(CloudError::Refused(format!(
            "libvirt on this host has no network {name}; it has: {there} (virsh net-define FILE makes one)"
        )));
    }
    if !has(&ask(words(&["net-list", "--name"])).await?) {
        let started = ask(words(&["net-start", "--network", name])).await;
        // Somebody else may have started it at the same time.
        if let Err(error) = started
            && !has(&ask(words(&["net-list", "--name"])).await?)
        {
            return Err(error);
        }
        ground.say(&format!("network {name} of libvirt was started"));
    }
    if !has(&ask(words(&["net-list", "--all", "--autostart", "--name"])).await?) {
        ground.say(&format!(
            "network {name} of libvirt does not start with the host: virsh net-autostart {name}"
        ));
    }
    Ok(())
}

/// Names go into paths and arguments.
fn check_name(name: &str, most: usize) -> Result<(), CloudError> {
    let inside = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.is_empty() && name.len() <= most && !name.starts_with(['-', '.']) && name.chars().all(inside) {
        return Ok(());
    }
    Err(CloudError::Refused(format!("{name:?} is no name of a bridge or network")))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::node::tools::Ask;
    use crate::node::tools::fake::Fake;

    fn host(files: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().expect("a folder");
        for path in files {
            let path = dir.path().join("sys/class/net").join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_bridge_with_a_port_that_leads_out_is_fine() {
        let (_dir, root) = host(&["br0/bridge/x", "br0/brif/eth0", "eth0/x"]);
        assert_eq!(bridge(&root, "br0").expect("fine"), None);
    }

    #[test]
    fn a_bridge_of_guests_only_is_warned_of() {
        let (_dir, root) = host(&["br0/bridge/x", "br0/brif/vnet0", "vnet0/tun_flags"]);
        assert!(bridge(&root, "br0").expect("usable").is_some_and(|text| text.contains("no port")));
    }

    #[test]
    fn no_bridge_another_interface_and_a_wireless_port_are_refused_with_what_to_do() {
        let (_dir, root) = host(&["eth0/x", "br1/bridge/x", "br1/brif/wlan0", "wlan0/wireless/x"]);
        for (name, part) in [
            ("br0", "does not exist on this host: create it"),
            ("eth0", "no bridge but another interface"),
            ("br1", "wireless"),
            ("../x", "no name"),
            ("-x", "no name"),
            ("abcdefghijklmnop", "no name"),
        ] {
            let error = bridge(&root, name).expect_err(name).to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[tokio::test]
    async fn an_inactive_network_is_started_and_an_unknown_one_named() {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, lines) = (asked.clone(), said.clone());
        let tools = Fake(move |ask: &Ask| {
            let words = ask.args[3..].join(" ");
            log.lock().expect("a lock").push(words.clone());
            Ok(if words == "net-list --all --name" { "default\nother\n" } else { "" }.to_owned())
        });
        let ground = Ground::new(Arc::new(tools), Root::system(), "x86_64", "test:///default", move |text| {
            lines.lock().expect("a lock").push(text.to_owned());
        });
        check(&ground, &Network::Nat("default".to_owned())).await.expect("started");
        assert!(asked.lock().expect("a lock").contains(&"net-start --network default".to_owned()));
        assert!(said.lock().expect("a lock").iter().any(|line| line.contains("was started")));
        let error = check(&ground, &Network::Nat("lan".to_owned())).await.expect_err("unknown").to_string();
        assert!(error.contains("has no network lan; it has: default, other"), "{error}");
    }
}
