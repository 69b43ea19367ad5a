//! Cancel, lost connections, killed drivers: what must be ended is ended, one reply each, none after DRIVER_CANCEL.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::document::Document;
use crate::harness::driver::Driver;
use crate::harness::front_end::FrontEnd;
use crate::harness::processes::{self, Process};
use crate::harness::vm::Vm;
use crate::harness::{bed, wait_for};
use crate::life::{ACTION, deploy};

const PARALLEL: &str = "-t 15 -r 0 kvm -p";
const SOON: Duration = Duration::from_secs(30);
/// In the place of `reboot`: lasts, and says so; ends by TERM.
const LASTS: &str = "#!/bin/bash\nprintf 'INFO: lasting\\n' >&2\nexec sleep 600\n";
/// In the place of `reset`: quick.
const QUICK: &str = "#!/bin/bash\nexit 0\n";

fn front() -> FrontEnd {
    let front = FrontEnd::staged();
    front.put("var/remotes/vmm/kvm/reboot", 0o755, LASTS);
    front.put("var/remotes/vmm/kvm/reset", 0o755, QUICK);
    front
}

fn document(vm: u32, host: &str) -> String {
    Document { host: host.into(), deploy_id: format!("one-{vm}"), vm, ..Document::default() }.payload()
}

/// The lasting scripts that run on a host for this front-end.
fn lasting(front: &FrontEnd, host: &str) -> Vec<Process> {
    let traces = if host == bed::FRONT_END {
        processes::traces(host, &front.folder().display().to_string())
    } else {
        let mut found = processes::traces(host, front.remotes());
        let below: Vec<Process> = found.iter().flat_map(|process| processes::tree(process.pid)).collect();
        found.extend(below);
        found
    };
    traces.into_iter().filter(|process| process.arguments == ["sleep", "600"]).collect()
}

fn starts_lasting(driver: &mut Driver, front: &FrontEnd, vm: u32, host: &str) -> Vec<Process> {
    driver.send("REBOOT", vm, &document(vm, host));
    driver.conversation.log(vm, "lasting", SOON);
    wait_for(SOON, || Some(lasting(front, host)).filter(|found| !found.is_empty()))
        .expect("the script runs on the host")
}

fn ended(processes: &[Process], limit: Duration) -> bool {
    let set = processes.iter().cloned().collect();
    wait_for(limit, || processes::alive(&set).is_empty().then_some(())).is_some()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn driver_cancel_ends_the_work_on_the_host_and_no_reply_follows() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, PARALLEL);
    for (vm, host) in [(2041, "node1"), (2042, bed::DIFFICULT)] {
        let running = starts_lasting(&mut driver, &front, vm, host);
        driver.cancel(vm);
        assert!(ended(&running, Duration::from_secs(15)), "it is ended on {host}");
        driver.conversation.log(vm, "cancelled", SOON);
        // the next action of the VM runs and is answered; nothing came for the cancelled one
        assert!(driver.ask("RESET", vm, &document(vm, host), SOON).succeeded());
        assert_eq!(driver.conversation.replies("REBOOT", vm), 0, "{}", driver.conversation.text());
    }
    driver.cancel(2999);
    assert!(
        driver.ask("RESET", 2041, &document(2041, "node1"), SOON).succeeded(),
        "an unknown id is no trouble"
    );
}

#[test]
#[ignore = "needs the test bed: make test"]
fn driver_cancel_of_a_queued_request_drops_it_and_counts_it_once() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, "-t 1 -r 0 kvm -p");
    let running = starts_lasting(&mut driver, &front, 2043, "node1");
    driver.send("RESET", 2044, &document(2044, "node1"));
    driver.cancel(2044);
    driver.conversation.log(2044, "cancelled", SOON);
    driver.cancel(2043);
    assert!(ended(&running, Duration::from_secs(15)));
    assert!(driver.ask("RESET", 2045, &document(2045, "node1"), SOON).succeeded());
    // one slot, still one: while one lasts, the next waits
    starts_lasting(&mut driver, &front, 2046, "node1");
    driver.send("RESET", 2047, &document(2047, "node1"));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(driver.conversation.replies("RESET", 2047), 0, "the slot is taken");
    driver.cancel(2046);
    driver.conversation.reply("RESET", 2047, 0, SOON);
    assert_eq!(driver.conversation.replies("RESET", 2044), 0);
    assert_eq!(driver.conversation.replies("REBOOT", 2043) + driver.conversation.replies("REBOOT", 2046), 0);
}

#[test]
#[ignore = "needs the test bed: make test"]
fn cancel_ends_a_shutdown_that_waits_and_only_cancel_is_answered() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    for (id, with_line) in [(2048, true), (2049, false)] {
        let mut vm = Vm::new(&front, id, "node1").without_guest();
        let mut driver = Driver::ready(&front, PARALLEL);
        deploy(&mut driver, &mut vm);
        driver.send("SHUTDOWN", id, &vm.document().payload());
        std::thread::sleep(Duration::from_secs(2));
        if with_line {
            driver.cancel(id);
        }
        let reply = driver.ask("CANCEL", id, &vm.document().payload(), SOON);
        assert!(reply.succeeded(), "{}\n{}", reply.raw, driver.conversation.text());
        assert_eq!(vm.state(), None);
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(driver.conversation.replies("SHUTDOWN", id), 0, "{}", driver.conversation.text());
        assert_eq!(driver.conversation.replies("CANCEL", id), 1);
    }
}

/// Everything of a driver on front-end and hosts.
fn all_traces(front: &FrontEnd, driver: &Driver) -> Vec<Process> {
    let mut found = processes::tree(driver.pid());
    found.extend(processes::traces(bed::FRONT_END, &front.folder().display().to_string()));
    for host in bed::NODES.iter().chain([&bed::DIFFICULT]) {
        for process in processes::traces(host, front.remotes()) {
            found.extend(processes::tree(process.pid));
        }
    }
    // the agent is the harness's own
    found.retain(|process| !process.arguments.iter().any(|word| word == "ssh-agent"));
    found.into_iter().collect()
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_ten_seconds_after_kill_9_nothing_of_the_driver_is_left() {
    let _use = bed::alone();
    let front = front();
    let mut driver = Driver::ready(&front, "-t 15 -r 0 -l reset=reboot kvm -p");
    for (vm, host) in [(2051, "node1"), (2052, "node2"), (2053, bed::DIFFICULT)] {
        starts_lasting(&mut driver, &front, vm, host);
    }
    driver.send("RESET", 2054, &document(2054, "node1"));
    driver.conversation.log(2054, "lasting", SOON);
    // a script says that it lasts just before it starts its sleep
    let lasting = |all: &[Process]| all.iter().filter(|p| p.arguments == ["sleep", "600"]).count() >= 4;
    let all = wait_for(SOON, || Some(all_traces(&front, &driver)).filter(|all| lasting(all)));
    let all = all.unwrap_or_else(|| panic!("not all last: {:#?}", all_traces(&front, &driver)));
    driver.kill();
    let gone = ended(&all, Duration::from_secs(10));
    let set = all.into_iter().collect();
    assert!(gone, "left after 10 s: {:#?}", processes::alive(&set));
    let now = processes::traces(bed::FRONT_END, &front.folder().display().to_string());
    assert!(now.iter().all(|process| process.arguments[0] == "ssh-agent"), "{now:#?}");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn eof_ends_the_driver_and_its_work_everywhere() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, PARALLEL);
    starts_lasting(&mut driver, &front, 2055, "node1");
    starts_lasting(&mut driver, &front, 2056, bed::DIFFICULT);
    let all = all_traces(&front, &driver);
    driver.close_stdin();
    assert_eq!(driver.exit(Duration::from_secs(10)).and_then(|status| status.code()), Some(255));
    let gone = ended(&all, Duration::from_secs(15));
    let set = all.into_iter().collect();
    assert!(gone, "left: {:#?}", processes::alive(&set));
    assert_eq!(driver.conversation.partial(), None, "no half line");
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_connection_that_dies_fails_what_runs_on_it_and_the_next_action_reconnects() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, PARALLEL);
    for (vm, host) in [(2057, "node1"), (2058, bed::DIFFICULT)] {
        let running = starts_lasting(&mut driver, &front, vm, host);
        let ssh: Vec<Process> = processes::tree(driver.pid())
            .into_iter()
            .chain(processes::traces(bed::FRONT_END, &front.folder().display().to_string()))
            .filter(|process| process.arguments[0].starts_with("ssh") && process.arguments[0] != "ssh-agent")
            .collect();
        assert!(!ssh.is_empty(), "no ssh process on the front-end");
        for process in &ssh {
            processes::signal(process.pid, "KILL");
        }
        let reply = driver.conversation.reply("REBOOT", vm, 0, SOON);
        assert_eq!(reply.status, "FAILURE");
        assert!(reply.info.contains(host), "it names the host: {}", reply.raw);
        assert!(ended(&running, SOON), "the work on {host} is ended");
        assert!(
            driver.ask("RESET", vm, &document(vm, host), SOON).succeeded(),
            "{}",
            driver.conversation.text()
        );
        assert_eq!(driver.conversation.replies("REBOOT", vm), 1);
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn hosts_that_can_not_be_reached_are_failures_with_the_reason_of_ssh() {
    let _use = bed::shared();
    let front = front();
    let mut driver = Driver::ready(&front, PARALLEL);
    for (vm, host) in [(2059, "no-such-host"), (2060, "10.77.0.99")] {
        let start = Instant::now();
        let reply = driver.ask("RESET", vm, &document(vm, host), Duration::from_secs(90));
        assert_eq!(reply.status, "FAILURE");
        assert!(reply.info.contains(host), "{}", reply.raw);
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
    assert!(driver.ask("RESET", 2061, &document(2061, "node1"), SOON).succeeded());
}

#[test]
#[ignore = "needs the test bed: make test"]
fn a_host_whose_key_has_changed_is_a_failure_that_says_so() {
    let _use = bed::alone();
    let front = front();
    let name = "bed-other-key";
    let hosts = bed::folder().join("nodes/hosts");
    let known = bed::host_path(bed::FRONT_END, "/etc/ssh/ssh_known_hosts");
    let (hosts_before, known_before) =
        (fs::read(&hosts).expect("hosts"), fs::read(&known).expect("known hosts"));
    let key = fs::read_to_string(bed::folder().join("keys/id.pub")).expect("a key");
    let append = |file: &std::path::Path, old: &[u8], line: String| {
        fs::write(file, [old, line.as_bytes()].concat()).expect("appended");
    };
    append(&hosts, &hosts_before, format!("10.77.0.12 {name}\n"));
    append(&known, &known_before, format!("{name} {key}"));
    let mut driver = Driver::ready(&front, PARALLEL);
    driver.send("RESET", 2062, &document(2062, name));
    let reply =
        driver.conversation.wait(SOON, |lines| lines.iter().find(|line| line.kind == "RESET").cloned());
    fs::write(&hosts, hosts_before).expect("as before");
    fs::write(&known, known_before).expect("as before");
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, "FAILURE");
    assert!(
        reply.info.contains("Host key verification failed") || reply.info.contains("key"),
        "{}",
        reply.raw
    );
}

#[test]
#[ignore = "needs the test bed: make test"]
fn many_actions_at_once_all_succeed_where_sshd_allows_one_session() {
    let _use = bed::shared();
    for foreign in [false, true] {
        let mut front = FrontEnd::staged();
        if foreign {
            front = front.with_remotes(&bed::programs().join("../bed/foreign-remotes"));
        }
        front.put("var/remotes/vmm/kvm/reset", 0o755, QUICK);
        let mut driver = Driver::ready(&front, PARALLEL);
        for vm in 2100..2130 {
            driver.send("RESET", vm, &document(vm, bed::DIFFICULT));
        }
        for vm in 2100..2130 {
            let reply = driver.conversation.reply("RESET", vm, 0, ACTION);
            assert!(reply.succeeded(), "foreign {foreign}: {}", reply.raw);
        }
    }
}

/// Stops a host's libvirtd (it hangs, it does not die) while it lives.
struct Hanging(u32);

impl Hanging {
    fn libvirtd(host: &str) -> Self {
        let found = processes::of_host(host);
        let named = |process: &&Process| Path::new(&process.arguments[0]).ends_with("libvirtd");
        let daemon = found.values().find(named).expect("libvirtd");
        processes::signal(daemon.pid, "STOP");
        Self(daemon.pid)
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        processes::signal(self.0, "CONT");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_other_hosts_are_served_at_full_speed_while_libvirt_of_one_hangs() {
    let _use = bed::alone();
    let front = FrontEnd::staged();
    front.put("var/remotes/vmm/kvm/reset", 0o755, QUICK);
    let mut driver = Driver::ready(&front, PARALLEL);
    // connections are there before
    for host in bed::NODES {
        assert!(driver.ask("RESET", 2140, &document(2140, host), SOON).succeeded());
    }
    let hanging = Hanging::libvirtd("node2");
    for vm in 2141..2161 {
        driver.send("REBOOT", vm, &document(vm, "node2"));
    }
    let start = Instant::now();
    for vm in 2161..2181 {
        driver.send("RESET", vm, &document(vm, "node1"));
    }
    for vm in 2161..2181 {
        assert!(driver.conversation.reply("RESET", vm, 0, SOON).succeeded());
    }
    let took = start.elapsed();
    drop(hanging);
    assert!(took < Duration::from_secs(5), "20 quick actions on node1 took {took:?}");
    for vm in 2141..2161 {
        let reply = driver.conversation.reply("REBOOT", vm, 0, ACTION);
        assert_eq!(reply.status, "FAILURE", "there is no such domain");
    }
}

/// In the place of an action: tells the keys that it could use on its way to other hosts.
const TELLS_KEYS: &str =
    "#!/bin/bash\nprintf 'INFO: keys:%s\\n' \"$(ssh-add -L 2>&1 | cut -d' ' -f2 | tr '\\n' ' ')\" >&2\n";

#[test]
#[ignore = "needs the test bed: make test"]
fn a_delegated_action_can_use_the_agent_of_the_front_end_and_no_other_action_can() {
    let _use = bed::shared();
    let front = FrontEnd::staged();
    for script in ["reset", "reboot"] {
        front.put(&format!("var/remotes/vmm/kvm/{script}"), 0o755, TELLS_KEYS);
    }
    let mut command = bed::as_oneadmin(bed::FRONT_END);
    command.arg("env").arg(format!("SSH_AUTH_SOCK={}", front.folder().join("agent").display()));
    command.args(["ssh-add", "-L"]);
    let listed = bed::run(command);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let key = listed.split_whitespace().nth(1).expect("the agent has a key");
    let mut driver = Driver::ready(&front, "-t 15 -r 0 -d reset kvm -p");
    for (vm, host) in [(4001, "node1"), (4002, bed::DIFFICULT)] {
        let told = |driver: &mut Driver, verb| {
            let before = driver.conversation.lines().len();
            assert!(driver.ask(verb, vm, &document(vm, host), SOON).succeeded(), "{verb} on {host}");
            let lines = driver.conversation.lines().split_off(before);
            lines.into_iter().find(|line| line.info.contains("keys:")).expect("it tells its keys").info
        };
        assert!(told(&mut driver, "RESET").contains(key), "delegated, on {host}");
        assert!(!told(&mut driver, "REBOOT").contains(key), "not delegated, on {host}");
    }
}

/// Packets between the front-end and a host are dropped, both ways, while it lives.
struct Cut(String);

impl Cut {
    fn rules(host: &str, how: &str) {
        for (chain, side) in [("INPUT", "-s"), ("OUTPUT", "-d")] {
            let done = Command::new("ip")
                .args([
                    "netns",
                    "exec",
                    &bed::namespace(host),
                    "iptables",
                    "-w",
                    how,
                    chain,
                    side,
                    "10.77.0.1",
                    "-j",
                    "DROP",
                ])
                .status();
            assert!(done.is_ok_and(|status| status.success()), "iptables {how} {chain} on {host}");
        }
    }

    fn off(host: &str) -> Self {
        Self::rules(host, "-I");
        Self(host.to_owned())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        Self::rules(&self.0, "-D");
    }
}

#[test]
#[ignore = "needs the test bed: make test"]
fn alone_a_half_open_connection_is_noticed_within_a_minute_and_the_next_action_reconnects() {
    let _use = bed::alone();
    let front = front();
    let mut driver = Driver::ready(&front, PARALLEL);
    let running = starts_lasting(&mut driver, &front, 2063, "node2");
    let cut = Cut::off("node2");
    let start = Instant::now();
    let reply = driver.conversation.reply("REBOOT", 2063, 0, Duration::from_secs(75));
    assert_eq!(reply.status, "FAILURE");
    assert!(reply.info.contains("node2"), "{}", reply.raw);
    // Both ends give up 45 s after the last sign of life (ping_timeout), which was before the cut.
    assert!(reply.at - start < Duration::from_secs(55), "noticed after {:?}", reply.at - start);
    assert!(ended(&running, Duration::from_secs(55).saturating_sub(start.elapsed())), "the host notices too");
    drop(cut);
    let next = driver.ask("RESET", 2063, &document(2063, "node2"), SOON);
    assert!(next.succeeded(), "{}", next.raw);
    assert_eq!(driver.conversation.replies("REBOOT", 2063), 1);
}
