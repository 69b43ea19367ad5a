//! Transport and memory stream under TLS, with certificates of the test; post-copy.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::faults::restart_libvirtd;
use crate::guest::{Guest, Storage};
use crate::harness::bed;
use crate::stand;

fn openssl(folder: &Path, words: &[&str]) {
    let output = Command::new("openssl").current_dir(folder).args(words).output().expect("openssl");
    assert!(output.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An authority, and for each host a certificate that serves as client and as server, by its name.
fn certificates(folder: &Path) {
    let authority =
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kvmad test"];
    openssl(folder, &[&authority[..], &["-keyout", "ca.key", "-out", "ca.pem"]].concat());
    for host in bed::NODES {
        let (key, request, certificate) =
            (format!("{host}.key"), format!("{host}.csr"), format!("{host}.pem"));
        let subject = format!("/O=kvmad/CN={host}");
        openssl(
            folder,
            &["req", "-newkey", "rsa:2048", "-nodes", "-subj", &subject, "-keyout", &key, "-out", &request],
        );
        let extensions = format!("{host}.ext");
        let text = format!("subjectAltName=DNS:{host}\nextendedKeyUsage=serverAuth,clientAuth\n");
        fs::write(folder.join(&extensions), text).expect("a file");
        let sign = ["x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        openssl(
            folder,
            &[&sign[..], &["-in", &request, "-out", &certificate, "-extfile", &extensions]].concat(),
        );
    }
}

/// The places where libvirt and QEMU look, on a host; taken away again with it.
struct Installed(&'static str);

const LIBVIRTD: &str = "/etc/libvirt/libvirtd.conf";

impl Installed {
    fn on(host: &'static str, folder: &Path) -> Self {
        let own = |suffix: &str| folder.join(format!("{host}.{suffix}"));
        let authority = folder.join("ca.pem");
        let (certificate, key) = (own("pem"), own("key"));
        let places = [
            ("CA/cacert.pem", &authority),
            ("libvirt/servercert.pem", &certificate),
            ("libvirt/clientcert.pem", &certificate),
            ("libvirt/private/serverkey.pem", &key),
            ("libvirt/private/clientkey.pem", &key),
            ("qemu/ca-cert.pem", &authority),
            ("qemu/server-cert.pem", &certificate),
            ("qemu/client-cert.pem", &certificate),
            ("qemu/server-key.pem", &key),
            ("qemu/client-key.pem", &key),
        ];
        for (place, from) in places {
            let to = bed::host_path(host, "/etc/pki").join(place);
            fs::create_dir_all(to.parent().expect("it has one")).expect("a folder");
            fs::copy(from, &to).expect("a copy");
        }
        // QEMU and virsh run as oneadmin
        bed::sh(host, &["chown", "-R", "oneadmin", "/etc/pki/libvirt", "/etc/pki/qemu"]);
        let file = bed::host_path(host, LIBVIRTD);
        let text = fs::read_to_string(&file).expect("libvirtd.conf");
        fs::write(bed::host_path(host, format!("{LIBVIRTD}.before")), &text).expect("a copy");
        fs::write(
            &file,
            text.replace("listen_tls=0", "listen_tls=1").replace("listen_tls = 0", "listen_tls = 1"),
        )
        .expect("libvirtd.conf");
        restart_libvirtd(host);
        Self(host)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let before = bed::host_path(self.0, format!("{LIBVIRTD}.before"));
        let _ = fs::rename(before, bed::host_path(self.0, LIBVIRTD));
        let _ = fs::remove_dir_all(bed::host_path(self.0, "/etc/pki/libvirt"));
        let _ = fs::remove_dir_all(bed::host_path(self.0, "/etc/pki/qemu"));
        let _ = fs::remove_file(bed::host_path(self.0, "/etc/pki/CA/cacert.pem"));
        restart_libvirtd(self.0);
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_transport_and_memory_under_tls() {
    let _use = bed::alone();
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let _installed = bed::NODES.map(|host| Installed::on(host, folder.path()));
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tls"), ("MIGRATE_TLS", "yes")]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, 7120, "node1", Storage::Shared, false);
    guest.boot(&mut driver);
    guest.migrate(&mut driver);
    guest.migrate(&mut driver);
    guest.kept_running();
    // without its key the target's QEMU can't take part: the VM stays, and the reply says why
    fs::remove_file(bed::host_path("node2", "/etc/pki/qemu/server-key.pem")).expect("the key");
    let leaving = guest.leave(&mut driver, "node2");
    let reply = guest.went(&driver, &leaving, crate::guest::ACTION);
    assert_eq!(reply.status, "FAILURE");
    assert!(
        reply.info.contains("/etc/pki/qemu") || reply.info.to_lowercase().contains("tls"),
        "{}",
        reply.raw
    );
    guest.runs_here_alone().expect("it stays");
    guest.kept_running();
}

const USERFAULTFD: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// A kernel setting, as before when it goes.
#[derive(Debug)]
pub struct Kernel(String);

impl Kernel {
    /// QEMU, which runs as oneadmin, may fetch a guest's memory piece by piece.
    pub fn allows_postcopy() -> Self {
        let before = fs::read_to_string(USERFAULTFD).expect("the kernel has userfaultfd");
        fs::write(USERFAULTFD, "1").expect("root");
        Self(before)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = fs::write(USERFAULTFD, self.0.trim());
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_guest_that_never_comes_to_an_end_goes_on_by_post_copy() {
    let _use = bed::alone();
    let _kernel = Kernel::allows_postcopy();
    let front = stand::front(&[("QEMU_PROTOCOL", "qemu+tcp")]);
    let mut driver = stand::driver(&front);
    let mut guest = Guest::new(&front, 7121, "node1", Storage::Shared, false);
    guest.boot(&mut driver);
    crate::busy::dirties_its_memory(&guest);
    guest.features = crate::busy::limited(5, "postcopy");
    let leaving = guest.leave(&mut driver, "node2");
    let reply = guest.went(&driver, &leaving, Duration::from_secs(240));
    assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
    assert!(driver.conversation.text().contains("post-copy"), "{}", driver.conversation.text());
    guest.runs_here_alone().expect("it arrived");
    guest.kept_running();
}
