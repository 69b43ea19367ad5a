//! The conversations of older releases, on a real host. Datagrams are base64 of the text, not deflated: 4.4 to 4.14 read
//! only that, and 5.x takes a payload that does not inflate as it is.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::receiver::Receiver;
use super::{PATIENCE, Paused, im_driver};
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::{bed, wait_for};

const HOST: &str = "node1";

fn monitor(driver: &mut Driver, request: &str, id: u32) -> String {
    let before = driver.conversation.replies("MONITOR", id);
    driver.line(request);
    let line = driver.conversation.reply("MONITOR", id, before, PATIENCE);
    assert!(line.succeeded(), "{}\n{}", line.raw, driver.conversation.text());
    String::from_utf8(STANDARD.decode(&line.info).expect("base64")).expect("text")
}

/// What the probes of 4.0 to 5.10 must tell of this host and this domain.
fn complete(text: &str, domain: &Paused, id: u32) {
    for part in ["ARCH=", "HYPERVISOR=kvm", "TOTALCPU=", "TOTALMEMORY=", "NETRX=", "VM_POLL=YES"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let machine = bed::sh(HOST, &["uname", "-n"]);
    assert!(
        text.contains(&format!("HOSTNAME={}", machine.trim()))
            || text.contains(&format!("HOSTNAME=\"{}\"", machine.trim())),
        "{text}"
    );
    let vm = text.split("VM=[").find(|block| block.contains(&format!("DEPLOY_ID={}", domain.name)));
    let vm = vm.unwrap_or_else(|| panic!("no {}: {text}", domain.name));
    assert!(vm.contains(&format!("ID={id},")) && vm.contains("STATE="), "{vm}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn the_era_of_collectd_gets_a_round_at_once_and_datagrams_until_it_is_stopped() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let receiver = Receiver::start(None);
    let config = format!(
        "SCRIPTS_REMOTE_DIR={}\nIM_MAD=NAME=collectd,EXECUTABLE=collectd,ARGUMENTS=-p {} -f 5 -t 50 -i 2\n",
        front.remotes(),
        receiver.port
    );
    front.put("var/config", 0o644, &config);
    let domain = Paused::create(HOST, "one-5910");
    let mut driver = im_driver(&front, "-r 0 -t 15 -w 90 kvm");
    let text = monitor(&mut driver, "MONITOR 5910 node1 /var/lib/one//datastores 1", 5910);
    complete(&text, &domain, 5910);
    let come = |n: usize| {
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        wait_for(PATIENCE, || receiver.raw().get(n).map(|came| (came.by.clone(), words(&came.bytes))))
            .expect("a datagram")
    };
    for n in 0..2 {
        let (by, line) = come(n);
        let packed = line.strip_prefix("MONITOR SUCCESS 5910 ").unwrap_or_else(|| panic!("{line}"));
        assert_eq!(by, "UDP");
        complete(&String::from_utf8(STANDARD.decode(packed).expect("base64")).expect("text"), &domain, 5910);
    }
    driver.line("STOPMONITOR 5910 node1 ");
    let line = driver.conversation.reply("STOPMONITOR", 5910, 0, PATIENCE);
    assert!(line.succeeded(), "{}", line.raw);
    let silent = receiver.count();
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(receiver.count(), silent, "nothing comes after it was stopped");
    for kind in ["lock", "state", "config", "socket"] {
        let _ = std::fs::remove_file(bed::host_path(HOST, format!("/var/tmp/one_db/kvmad/host-5910.{kind}")));
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn the_era_of_pulling_gets_host_and_vms_in_one_text() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    let domain = Paused::create(HOST, "one-5911");
    let mut driver = im_driver(&front, "-r 0 -t 15 kvm");
    let text = monitor(&mut driver, "MONITOR 5911 node1 1", 5911);
    complete(&text, &domain, 5911);
    drop(driver);
    // 3.8: plain text on one line, VMs are not a part of it.
    front.put("etc/kvmad.conf", 0o644, "[im]\npull_format = 3.8\n");
    let mut driver = im_driver(&front, "-r 0 -t 15 kvm");
    driver.line("MONITOR 5911 node1 0");
    let line = driver.conversation.reply("MONITOR", 5911, 0, PATIENCE);
    assert!(line.succeeded(), "{}", line.raw);
    assert!(
        line.info.contains("HYPERVISOR=kvm TOTALCPU=") && !line.info.contains("VM_POLL"),
        "{}",
        line.info
    );
}
