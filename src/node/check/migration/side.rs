//! What one of two hosts sees of itself and of the other one.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::hold::Marker;
use super::needs::{self, Needs};
use super::told::Told;
use crate::host::job::HostName;
use crate::node::migrate::transport::{data_uri, libvirt_uri};
use crate::node::monitor::virsh::Virsh;
use crate::node::root::Root;
use crate::node::tools::Ask;
use crate::template::xml::{Document, Element};

/// What is asked of a host; JSON on stdin.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Request {
    /// The other host, as OpenNebula knows it.
    pub peer: String,
    /// How libvirt there calls it.
    pub peer_hostname: Option<String>,
    /// The port that listens there.
    pub port: Option<u16>,
    /// XML of the domain that goes from one to the other.
    pub domain: Option<String>,
    /// Files that the other host has made.
    pub markers: Vec<Marker>,
}

/// What it answers; JSON on stdout.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// UUID that libvirt gives the host.
    pub uuid: Option<Told<String>>,
    /// Versions of libvirt and of the hypervisor (`QEMU 7.2.22`).
    pub versions: Option<Told<(String, String)>>,
    /// How libvirt calls this host, and where that name leads to on it.
    pub own: Option<(String, Told<Vec<IpAddr>>)>,
    /// Machine types that libvirt's capabilities list.
    pub machines: Vec<String>,
    /// Model of the host's CPU and its features, as libvirt tells them.
    pub cpu: Option<(String, Vec<String>)>,
    /// QEMU_PROTOCOL of kvmrc.
    pub protocol: String,
    /// MIGRATE_OPTIONS of kvmrc.
    pub options: String,
    /// Where the name leads to that OpenNebula has for the peer.
    pub peer: Option<Told<Vec<IpAddr>>>,
    /// Where the name leads to by which libvirt there calls it.
    pub peer_own: Option<(String, Told<Vec<IpAddr>>)>,
    /// The peer's libvirt, over the transport: the name that it gives itself.
    pub control: Option<Told<String>>,
    /// Name or address to which MIGRATE_URI of kvmrc sends the memory; `None`: libvirt there tells its own name.
    #[serde(default)]
    pub data: Option<String>,
    /// A connection to the port that listens there.
    pub stream: Option<Told<u16>>,
    /// Milliseconds since 1970, when it was asked.
    pub clock: u64,
    /// What there is of what the domain needs.
    pub needs: Option<Told<Needs>>,
}

/// Time limit of each question.
const LIMIT: Duration = Duration::from_secs(20);
/// Time limit of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// What kvmrc of a host says about migrations.
#[derive(Debug, Clone, Default)]
pub struct Kvmrc {
    /// QEMU_PROTOCOL.
    pub protocol: String,
    /// MIGRATE_OPTIONS.
    pub options: String,
    /// Name or address that MIGRATE_URI gives for the peer; `None`: the peer's libvirt tells its own name.
    pub data: Option<Told<String>>,
}

impl Kvmrc {
    /// Reads it for migrations to `peer`; `variable` gives the variables that are set.
    pub fn read(variable: impl Fn(&str) -> Option<String>, peer: &str) -> Self {
        let data = HostName::new(peer)
            .map_err(|error| error.to_string())
            .and_then(|peer| data_uri(&variable, &peer).map_err(|error| error.to_string()));
        Self {
            protocol: variable("QEMU_PROTOCOL").unwrap_or_else(|| "qemu+ssh".to_owned()),
            options: variable("MIGRATE_OPTIONS").unwrap_or_default(),
            data: data.map(|uri| uri.map(|uri| uri_host(&uri))).transpose(),
        }
    }
}

/// The host in `tcp://HOST[:PORT]`; an IPv6 address stands in brackets there.
fn uri_host(uri: &str) -> String {
    let authority = uri.split_once("://").map_or(uri, |(_, rest)| rest).split('/').next().unwrap_or_default();
    match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address.to_owned(),
        None => authority.split(':').next().unwrap_or_default().to_owned(),
    }
}

/// Looks at this host and the other one.
pub async fn look(virsh: &Virsh, root: &Root, request: &Request, kvmrc: &Kvmrc) -> Side {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let capabilities = async {
        let xml = virsh.run(&["capabilities"], Bytes::new(), LIMIT).await?;
        Document::parse(xml.trim())
            .map_err(|error| format!("the capabilities of libvirt can't be read: {error}"))
    };
    let versions = async { versions(&virsh.run(&["version", "--daemon"], Bytes::new(), LIMIT).await?) };
    let own = async {
        let name = virsh.run(&["hostname"], Bytes::new(), LIMIT).await.ok()?.trim().to_owned();
        let addresses = addresses(virsh, &name).await;
        Some((name, addresses))
    };
    let peer_own = async {
        match &request.peer_hostname {
            Some(name) => Some((name.clone(), addresses(virsh, name).await)),
            None => None,
        }
    };
    let needed = async {
        match &request.domain {
            Some(xml) => Some(needs::look(virsh, root, xml, &request.markers).await),
            None => None,
        }
    };
    let control = control(virsh, &kvmrc.protocol, &request.peer);
    let (capabilities, versions, own, peer, peer_own, control, needs) =
        tokio::join!(capabilities, versions, own, addresses(virsh, &request.peer), peer_own, control, needed);
    let data = match &kvmrc.data {
        Some(Ok(name)) => Some(addresses(virsh, name).await),
        Some(Err(why)) => Some(Err(why.clone())),
        None => peer_own.as_ref().map(|(_, own)| own.clone()),
    };
    let stream = stream(data.as_ref().unwrap_or(&peer), request.port).await;
    let uuid = capabilities.as_ref().map_err(Clone::clone).and_then(|document| {
        document
            .root()
            .filled("host/uuid")
            .ok_or_else(|| "libvirt's capabilities have no host/uuid".to_owned())
    });
    let known = capabilities.as_ref().ok().map(Document::root);
    Side {
        uuid: Some(uuid),
        versions: Some(versions),
        own,
        machines: known.map(machines).unwrap_or_default(),
        cpu: known.and_then(cpu),
        protocol: kvmrc.protocol.clone(),
        options: kvmrc.options.clone(),
        peer: Some(peer),
        peer_own,
        control: Some(control),
        data: kvmrc.data.clone().and_then(Result::ok),
        stream,
        clock,
        needs,
    }
}

/// Every machine type of every guest, each once.
fn machines(capabilities: &Element) -> Vec<String> {
    let archs = capabilities.children("guest").filter_map(|guest| guest.child("arch"));
    let own = |arch: &Element| arch.children("machine").map(Element::text).collect::<Vec<_>>();
    let mut all: Vec<String> =
        archs.flat_map(|arch| own(arch).into_iter().chain(arch.children("domain").flat_map(own))).collect();
    all.sort();
    all.dedup();
    all
}

fn cpu(capabilities: &Element) -> Option<(String, Vec<String>)> {
    let cpu = capabilities.at("host/cpu")?;
    let features = cpu.children("feature").filter_map(|feature| feature.attribute("name"));
    Some((cpu.filled("model")?, features.map(str::to_owned).collect()))
}

/// Out of `virsh version --daemon`, which has no form for machines: the words after the colons.
fn versions(text: &str) -> Told<(String, String)> {
    let after = |start: &str| {
        text.lines().find_map(|line| line.strip_prefix(start)?.trim_start().strip_prefix(':')).map(str::trim)
    };
    let daemon = after("Running against daemon").or_else(|| after("Using library"));
    match (daemon, after("Running hypervisor")) {
        (Some(libvirt), Some(qemu)) => {
            Ok((libvirt.trim_start_matches("libvirt ").to_owned(), qemu.to_owned()))
        }
        _ => Err(format!("virsh version printed no versions: {}", text.trim().replace('\n', "; "))),
    }
}

/// Where a name leads to, by the resolver of the system (this program is static and has none of its own).
async fn addresses(virsh: &Virsh, name: &str) -> Told<Vec<IpAddr>> {
    if name.is_empty() || name.starts_with('-') {
        return Err(format!("{name:?} is no host name"));
    }
    let answer = virsh.tools().ask(Ask::new("getent", ["ahosts", name], LIMIT)).await?;
    let text = answer.good("getent", LIMIT).map_err(|_| format!("{name} is not known on this host"))?;
    let mut all: Vec<IpAddr> = Vec::new();
    for address in text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    if all.is_empty() { Err(format!("{name} has no address")) } else { Ok(all) }
}

async fn control(virsh: &Virsh, protocol: &str, peer: &str) -> Told<String> {
    let peer = HostName::new(peer).map_err(|error| error.to_string())?;
    let uri = libvirt_uri(protocol, &peer).map_err(|error| error.to_string())?;
    let ask = Ask::new("virsh", ["--quiet", "--connect", &uri, "hostname"], LIMIT);
    let answer = virsh.tools().ask(ask).await?.good("virsh", LIMIT);
    answer.map(|name| name.trim().to_owned()).map_err(|reason| format!("{uri}: {reason}"))
}

/// Connects to the port at the address that QEMU would use.
async fn stream(addresses: &Told<Vec<IpAddr>>, port: Option<u16>) -> Option<Told<u16>> {
    let port = port?;
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err(why) => return Some(Err(format!("the target of the memory stream: {why}"))),
    };
    let mut reason = String::new();
    for address in addresses {
        match timeout(CONNECT, TcpStream::connect((*address, port))).await {
            Ok(Ok(_)) => return Some(Ok(port)),
            Ok(Err(error)) => reason = format!("{address} port {port}: {error}"),
            Err(_) => reason = format!("{address} port {port}: no answer within {CONNECT:?}"),
        }
    }
    Some(Err(reason))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::tools::fake::Fake;

    const CAPABILITIES: &str = "<capabilities><host><uuid>19062f04-b7aa-4e3e-8fcd-de3db72803d6</uuid>\
<cpu><arch>x86_64</arch><model>Skylake-Server</model><feature name='vmx'/></cpu></host>\
<guest><arch name='x86_64'><machine>pc-i440fx-7.2</machine><machine>pc-q35-7.2</machine><domain type='kvm'><machine>pc-q35-7.2</machine></domain></arch></guest></capabilities>";

    fn answers(ask: &Ask) -> Result<String, (i32, String)> {
        let words: Vec<&str> = ask.args.iter().map(String::as_str).collect();
        match (ask.program.as_str(), words.as_slice()) {
            ("getent", [_, "node2"]) => Ok("127.0.0.1       STREAM node2\n127.0.0.1       DGRAM\n".into()),
            ("getent", _) => Err((2, String::new())),
            (_, [.., "capabilities"]) => Ok(CAPABILITIES.into()),
            (_, [.., "--daemon"]) => Ok("Using library: libvirt 9.0.0\nUsing API: QEMU 9.0.0\nRunning hypervisor: QEMU 7.2.22\nRunning against daemon: 9.0.1\n".into()),
            (_, [_, _, "qemu+ssh://node2/system?no_tty=1", "hostname"]) => Err((1, "error: Host key verification failed.".into())),
            (_, [.., "hostname"]) => Ok("node1.example\n".into()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_side_tells_what_it_sees() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let virsh = Virsh::new(Arc::new(Fake(answers)), "qemu:///system", LIMIT);
        let request = Request {
            peer: "node2".into(),
            peer_hostname: Some("node2.example".into()),
            port: Some(port),
            ..Request::default()
        };
        let kvmrc = Kvmrc::read(|name| (name == "MIGRATE_URI").then(|| "tcp://node2".to_owned()), "node2");
        let side = look(&virsh, &Root::system(), &request, &kvmrc).await;
        assert_eq!(side.uuid, Some(Ok("19062f04-b7aa-4e3e-8fcd-de3db72803d6".into())));
        assert_eq!(side.versions, Some(Ok(("9.0.1".into(), "QEMU 7.2.22".into()))));
        assert_eq!(side.machines, ["pc-i440fx-7.2", "pc-q35-7.2"]);
        assert_eq!(side.cpu, Some(("Skylake-Server".into(), vec!["vmx".into()])));
        assert_eq!(side.peer, Some(Ok(vec![IpAddr::from([127, 0, 0, 1])])));
        assert!(side.peer_own.expect("asked").1.is_err_and(|why| why.contains("node2.example is not known")));
        assert!(side.control.expect("asked").is_err_and(|why| why.contains("Host key verification failed")));
        assert_eq!(side.stream, Some(Ok(port)));
    }

    #[tokio::test]
    async fn a_port_that_refuses_is_told_with_its_address() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let told = stream(&Ok(vec![IpAddr::from([127, 0, 0, 1])]), Some(port)).await;
        assert!(told.expect("asked").is_err_and(|why| why.contains("refused")), "closed");
    }

    #[test]
    fn the_stream_goes_where_kvmrc_says() {
        let read = |name: &'static str, value: &'static str| {
            Kvmrc::read(move |asked| (asked == name).then(|| value.to_owned()), "node2")
        };
        assert_eq!(read("x", "").data, None);
        assert_eq!(read("MIGRATE_URI", "tcp://{short}-mig:49200").data, Some(Ok("node2-mig".to_owned())));
        assert_eq!(read("MIGRATE_URI_node2", "tcp://[fd00::2]:49200").data, Some(Ok("fd00::2".to_owned())));
        assert!(read("MIGRATE_URI", "x").data.is_some_and(|data| data.is_err()));
    }

    #[test]
    fn what_prints_no_versions_is_quoted() {
        assert!(versions("hello\n").is_err_and(|why| why.ends_with("hello")));
    }
}
