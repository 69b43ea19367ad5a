//! How the hosts reach each other: libvirt's URIs and the address of the memory stream.

use crate::host::job::HostName;

/// Why no URI can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// QEMU_PROTOCOL is {0:?}; expected is the scheme of a libvirt URI, as qemu+ssh, qemu+tcp or qemu+tls
    #[error(
        "QEMU_PROTOCOL is {0:?}; expected is the scheme of a libvirt URI, as qemu+ssh, qemu+tcp or qemu+tls"
    )]
    Protocol(String),
    /// MIGRATE_URI for {host} is {uri:?}; expected is tcp://ADDRESS, tcp://ADDRESS:PORT or rdma://ADDRESS
    #[error(
        "MIGRATE_URI for {host} is {uri:?}; expected is tcp://ADDRESS, tcp://ADDRESS:PORT or rdma://ADDRESS"
    )]
    Uri {
        /// For this target.
        host: String,
        /// What came out.
        uri: String,
    },
}

/// The libvirt of `host`, seen from another machine: `PROTOCOL://HOST/system`. Over ssh nobody is asked for a password.
///
/// # Errors
/// [`TransportError::Protocol`].
pub fn libvirt_uri(protocol: &str, host: &HostName) -> Result<String, TransportError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    if !protocol.starts_with(|c: char| c.is_ascii_alphabetic()) || !protocol.chars().all(good) {
        return Err(TransportError::Protocol(protocol.to_owned()));
    }
    let ask_nobody = if protocol.ends_with("+ssh") { "?no_tty=1" } else { "" };
    Ok(format!("{protocol}://{}/system{ask_nobody}", in_uri(host.as_str())))
}

/// An IPv6 address stands in brackets.
fn in_uri(host: &str) -> String {
    if host.matches(':').count() > 1 { format!("[{host}]") } else { host.to_owned() }
}

/// Where the memory (and the disks) of a guest are sent: MIGRATE_URI_HOST when there is one for this target, else
/// MIGRATE_URI, with `{target}` replaced by the target's name and `{short}` by its part before the first dot. `None`: the
/// target's libvirt says where.
///
/// # Errors
/// [`TransportError::Uri`] when that gives no URI.
pub fn data_uri(
    setting: impl Fn(&str) -> Option<String>,
    target: &HostName,
) -> Result<Option<String>, TransportError> {
    let own = format!("MIGRATE_URI_{}", variable_part(target.as_str()));
    let Some(pattern) = setting(&own).or_else(|| setting("MIGRATE_URI")) else { return Ok(None) };
    let name = target.as_str();
    let short =
        if name.parse::<std::net::IpAddr>().is_ok() { name } else { name.split('.').next().unwrap_or(name) };
    let uri = pattern.replace("{target}", &in_uri(name)).replace("{short}", &in_uri(short));
    let good = |c: char| c.is_ascii_alphanumeric() || ".-_:/[]%".contains(c);
    match uri.split_once("://") {
        Some(("tcp" | "rdma", address)) if !address.is_empty() && uri.chars().all(good) => Ok(Some(uri)),
        _ => Err(TransportError::Uri { host: name.to_owned(), uri }),
    }
}

/// The name of a host as part of the name of a variable: what is no letter or digit becomes `_`.
#[must_use]
pub fn variable_part(host: &str) -> String {
    host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::new(name).expect("a host")
    }

    #[test]
    fn the_uri_of_libvirt_is_protocol_and_host() {
        let uri = |protocol, name| libvirt_uri(protocol, &host(name));
        assert_eq!(uri("qemu+tcp", "node2").as_deref(), Ok("qemu+tcp://node2/system"));
        assert_eq!(uri("qemu+ssh", "n.x").as_deref(), Ok("qemu+ssh://n.x/system?no_tty=1"));
        assert_eq!(uri("qemu+tls", "fd00::2").as_deref(), Ok("qemu+tls://[fd00::2]/system"));
        for bad in ["", "qemu+tcp://x", "a b", "+tcp", "qemu;"] {
            assert!(uri(bad, "h").is_err(), "{bad}");
        }
    }

    #[test]
    fn the_stream_goes_where_the_settings_say_the_target_s_own_first() {
        let settings = |all: &'static [(&str, &str)]| {
            move |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        };
        let node = host("node-2.example.org");
        assert_eq!(data_uri(settings(&[]), &node), Ok(None));
        let uri = data_uri(settings(&[("MIGRATE_URI", "tcp://{short}-mig")]), &node);
        assert_eq!(uri, Ok(Some("tcp://node-2-mig".to_owned())));
        let own: &[_] =
            &[("MIGRATE_URI", "tcp://{target}"), ("MIGRATE_URI_node_2_example_org", "tcp://10.9.0.2:49300")];
        assert_eq!(data_uri(settings(own), &node), Ok(Some("tcp://10.9.0.2:49300".to_owned())));
        let six = data_uri(settings(&[("MIGRATE_URI", "tcp://{target}")]), &host("fd00::2"));
        assert_eq!(six, Ok(Some("tcp://[fd00::2]".to_owned())));
        for bad in
            [&[("MIGRATE_URI", "10.0.0.2")], &[("MIGRATE_URI", "tcp://")], &[("MIGRATE_URI", "exec://x y")]]
        {
            assert!(data_uri(settings(bad), &node).is_err(), "{bad:?}");
        }
    }
}
