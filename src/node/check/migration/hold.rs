//! What a host holds ready while the other one looks: a port in the range of QEMU's migrations that can be connected to,
//! and a marker file beside each disk. Both go away when the process ends, whatever ends it short of KILL.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::node::root::Root;

/// What is held, told on stderr in one line of JSON as soon as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How libvirt calls the host; the other one's QEMU connects to this name.
    pub hostname: Option<String>,
    /// The port that listens, or why none does.
    pub port: Option<Result<u16, String>>,
    /// Markers, one a folder.
    pub markers: Vec<Marker>,
}

/// A file that was made to be seen by the other host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The folder.
    pub folder: String,
    /// Name of the file in it, or why there is none.
    pub name: Result<String, String>,
}

/// Removes its files when it goes.
#[derive(Debug, Default)]
pub struct Markers(Vec<PathBuf>);

impl Markers {
    /// Makes a file of a new name in `folder`.
    pub fn make(&mut self, folder: &str) -> Marker {
        let name = format!(".kvmad-check-{:016x}", rand::random::<u64>());
        let path = Path::new(folder).join(&name);
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let made = made.and_then(|mut file| {
            self.0.push(path);
            file.write_all(name.as_bytes())?;
            file.sync_all()
        });
        Marker { folder: folder.to_owned(), name: made.map(|()| name).map_err(|error| error.to_string()) }
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        for path in &self.0 {
            // Nothing can be done about one that can't be removed; its name says what it is.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// First and last port that QEMU's migrations use on this host: what qemu.conf says, if it can be read.
#[must_use]
pub fn port_range(root: &Root) -> (u16, u16) {
    let text = root.read("/etc/libvirt/qemu.conf").unwrap_or_default();
    let value = |key: &str| {
        text.lines().rev().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim().trim_matches('"').parse().ok())?
        })
    };
    // libvirt's own range
    (value("migration_port_min").unwrap_or(49_152), value("migration_port_max").unwrap_or(49_215))
}

/// Listens on a free port of the range, from its end: libvirt takes them from its beginning.
///
/// # Errors
/// Why no port can be had.
pub async fn listen((first, last): (u16, u16)) -> Result<(TcpListener, u16), String> {
    let mut reason = format!("there is no port from {first} to {last}");
    for port in (first..=last).rev() {
        for address in [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), (Ipv4Addr::UNSPECIFIED, port).into()]
        {
            match TcpListener::bind(address).await {
                Ok(listener) => return Ok((listener, port)),
                Err(error) => reason = format!("no port from {first} to {last} is free: {error}"),
            }
        }
    }
    Err(reason)
}

/// Accepts and closes whatever comes.
pub async fn accept(listener: TcpListener) {
    loop {
        if listener.accept().await.is_err() {
            // Out of descriptors for a moment, or a connection that was gone again.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_there_until_they_are_dropped() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().to_str().expect("UTF-8");
        let mut markers = Markers::default();
        let marker = markers.make(folder);
        let name = marker.name.expect("made");
        assert!(dir.path().join(&name).exists());
        let missing = markers.make("/no/such/folder").name.expect_err("not there");
        assert!(missing.contains("No such file"), "{missing}");
        drop(markers);
        assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn the_range_is_that_of_qemu_conf() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = Root::at(dir.path());
        assert_eq!(port_range(&root), (49_152, 49_215));
        std::fs::create_dir_all(dir.path().join("etc/libvirt")).expect("a folder");
        let text = "#migration_port_min = 1\nmigration_port_min = 50000\nmigration_port_max = \"50010\"\n";
        std::fs::write(dir.path().join("etc/libvirt/qemu.conf"), text).expect("written");
        assert_eq!(port_range(&root), (50_000, 50_010));
    }

    #[tokio::test]
    async fn a_port_of_the_range_listens_and_a_range_without_a_free_one_says_so() {
        let (first, port) = listen((42_100, 42_140)).await.expect("a port");
        assert!((42_100..=42_140).contains(&port));
        let other = listen((port, port)).await.expect_err("taken");
        assert!(other.contains("free"), "{other}");
        tokio::spawn(accept(first));
        assert!(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok());
        assert!(listen((9, 8)).await.is_err());
    }
}
