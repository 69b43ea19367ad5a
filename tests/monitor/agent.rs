//! The agent as OpenNebula's scripts start it, over a stand-in for virsh.

use std::time::{Duration, Instant};

use base64::Engine as _;
use kvmad::node::monitor::message::Kind;
use rustix::process::{Pid, Signal, kill_process};

use super::stand::{Stand, executable, text, uuid, wait};

fn part(reply: &str, kind: Kind) -> String {
    let (open, close) = (format!("<{}>", kind.name()), format!("</{}>", kind.name()));
    let packed = reply
        .split(&open)
        .nth(1)
        .and_then(|rest| rest.split(&close).next())
        .unwrap_or_else(|| panic!("no {} in {reply}", kind.name()));
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed).expect("base64");
    String::from_utf8(bytes).expect("text")
}

#[test]
fn a_start_is_answered_with_a_whole_round_and_the_agent_tells_changes_by_tcp() {
    let stand = Stand::new(5101);
    stand.domains(&[(7, 1, 1), (8, 3, 1)]);
    let output = stand.start();
    let reply = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(reply.starts_with("<MONITOR_MESSAGES><SYSTEM_HOST>"), "{reply}");
    assert!(reply.trim_end().ends_with("</TIMESTAMP></MONITOR_MESSAGES>"), "{reply}");
    let states = part(&reply, Kind::State);
    let expected = format!(
        "VM = [ ID=\"7\", DEPLOY_ID=\"{}\",  STATE=\"RUNNING\" ]\nVM = [ ID=\"8\", DEPLOY_ID=\"{}\",  STATE=\"SUSPENDED\" ]\n",
        uuid(7),
        uuid(8)
    );
    let head = "SYNC_STATE=yes\nMISSING_STATE=POWEROFF\n";
    if states == expected {
        // Another test deploys somewhere on this machine: the complete list waits for that.
        stand.receiver.wait_for(Kind::State, head);
    } else {
        assert_eq!(states, format!("{head}{expected}"));
    }
    let system = part(&reply, Kind::System);
    for name in [
        "HYPERVISOR=kvm\n",
        "KVM_MACHINES=\"pc\"",
        "KVM_CPU_MODELS=\"qemu64\"",
        "DS_LOCATION_TOTAL_MB=",
        "KVMAD_READY=",
    ] {
        assert!(system.contains(name), "{name}: {system}");
    }
    assert!(part(&reply, Kind::Host).contains("USEDMEMORY=") && part(&reply, Kind::Exec).is_empty());
    assert_eq!(part(&reply, Kind::Vm).matches("VM = [ ID=").count(), 2);

    stand.receiver.wait_for(Kind::Beacon, "");
    stand.receiver.wait_for(Kind::Host, "FREECPU=");
    stand.receiver.wait_for(Kind::Vm, &uuid(7));
    stand.domains(&[(8, 3, 1)]);
    let began = Instant::now();
    stand.event("event 'lifecycle' for domain 'one-7': Stopped Failed");
    let off = stand.receiver.wait_for(Kind::State, "ID=\"7\"");
    assert!(off.text.contains("POWEROFF") && !off.text.contains("SYNC"), "{}", off.text);
    assert!(began.elapsed() < Duration::from_secs(10));
    let by = stand.receiver.messages().into_iter().find(|(_, m)| *m == off).map(|(by, _)| by);
    assert_eq!(by, Some("TCP"));
    let all = stand.receiver.messages();
    assert!(
        all.iter().all(|(by, m)| m.success && m.host == 5101 && (*by == "TCP") == (m.kind == Kind::State))
    );

    let began = Instant::now();
    assert!(stand.stop().status.success());
    assert!(began.elapsed() < Duration::from_secs(10));
    wait("the end of all processes", || stand.processes().is_empty().then_some(()));
}

#[test]
fn a_second_start_takes_the_place_of_the_first_and_host_1_is_not_host_11() {
    let one = Stand::new(5102);
    let eleven = Stand::new(51021);
    assert!(one.start().status.success() && eleven.start().status.success());
    let (first, other) = (one.agent_pid().expect("runs"), eleven.agent_pid().expect("runs"));
    assert!(one.start().status.success());
    let second = one.agent_pid().expect("runs");
    assert_ne!(first, second);
    assert_eq!(one.processes().iter().filter(|(_, words)| words.contains(" monitor agent ")).count(), 1);
    assert!(one.stop().status.success());
    assert_eq!(eleven.agent_pid(), Some(other));
    assert!(one.stop().status.success(), "a second stop is fine");
}

#[test]
fn a_host_without_libvirt_refuses_with_the_reason_and_prints_nothing() {
    let stand = Stand::new(5103);
    stand.fault("down", true);
    let output = stand.start();
    assert!(!output.status.success());
    assert_eq!(text(&output.stdout), "");
    let said = text(&output.stderr);
    assert!(
        said.contains("libvirt can't be used on this host") && said.contains("failed to connect"),
        "{said}"
    );
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    assert!(stand.agent_pid().is_none());
}

#[test]
fn broken_input_is_refused_with_the_reason() {
    let stand = Stand::new(5104);
    for (stdin, part) in
        [("", "is empty"), ("<MONITOR_CONFIGURATION>", "is no XML"), ("<VM/>", "not MONITOR_CONFIGURATION")]
    {
        let output = stand.script("run_monitord_client", &["kvm", "5104", "node1"], stdin);
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
    let other = stand.config().replace("5104</HOST_ID>", "9</HOST_ID>");
    assert!(
        text(&stand.script("run_monitord_client", &["kvm", "5104", "n"], &other).stderr).contains("host 9")
    );
    let unknown = stand.config().replace("127.0.0.1", "no-such-name.invalid");
    let said = text(&stand.script("run_monitord_client", &["kvm", "5104", "n"], &unknown).stderr);
    assert!(said.contains("no-such-name.invalid") && said.contains("not known"), "{said}");
    std::fs::remove_dir_all(stand.path("one/im/kvm-probes.d")).expect("removed");
    assert!(text(&stand.start().stderr).contains("kvm-probes.d"));
    let missing = stand.script("run_monitord_client", &["lxc", "5104", "node1"], "x");
    assert!(!missing.status.success() && text(&missing.stderr).contains("lxc.d"));
}

#[test]
fn other_hypervisors_are_served_as_ever() {
    let stand = Stand::new(5105);
    executable(&stand.path("one/im/dummy.d/one_control.sh"), "#!/bin/sh\nprintf '%s|' \"$@\"; cat\n");
    executable(&stand.path("one/im/dummy.d/old.rpmsave"), "#!/bin/sh\nexit 1\n");
    let output = stand.script("run_monitord_client", &["dummy", "3", "host 3"], "<X a='*'>\n</X>");
    assert_eq!(text(&output.stdout), "dummy|3|host 3|<X a='*'>\n</X>\n");
    let output = stand.script("stop_monitord_client", &["dummy", "3", "h"], "x");
    assert_eq!(text(&output.stdout), "stop|dummy|3|h|x");
    executable(&stand.path("one/im/dummy.d/one_control.sh"), "#!/bin/sh\necho no; exit 7\n");
    let output = stand.script("run_monitord_client", &["dummy", "3", "h"], "x");
    assert_eq!(
        (output.status.code(), text(&output.stderr).as_str()),
        (Some(7), "Error executing one_control.sh: no\n")
    );
}

#[test]
fn libvirt_that_is_lost_is_told_as_trouble_of_the_host_and_never_as_the_end_of_a_vm() {
    let stand = Stand::new(5107)
        .with_env("KVMAD_AGENT_TROUBLE_AFTER", "2s")
        .with_env("KVMAD_AGENT_LIBVIRT_TIMEOUT", "1s");
    stand.domains(&[(7, 1, 1)]);
    assert!(stand.start().status.success());
    stand.receiver.wait_for(Kind::Beacon, "");
    for fault in ["hang", "down"] {
        stand.receiver.forget();
        stand.fault(fault, true);
        let beacon = wait("a failed beacon", || {
            stand
                .receiver
                .messages()
                .into_iter()
                .map(|(_, m)| m)
                .find(|m| m.kind == Kind::Beacon && !m.success)
        });
        assert!(beacon.text.contains("libvirt gave no answer"), "{}", beacon.text);
        let all = stand.receiver.messages();
        assert!(
            all.iter().all(|(_, m)| m.kind != Kind::State && (m.kind != Kind::System || !m.success)),
            "{all:?}"
        );
        stand.receiver.forget();
        stand.fault(fault, false);
        stand.receiver.wait_for(Kind::System, "HYPERVISOR=kvm");
        let list = stand.receiver.wait_for(Kind::State, "SYNC_STATE=yes");
        assert!(list.text.contains("ID=\"7\"") && list.text.contains("RUNNING"), "{}", list.text);
        wait("a good beacon", || {
            stand.receiver.messages().into_iter().find(|(_, m)| m.kind == Kind::Beacon && m.success)
        });
    }
}

#[test]
fn a_probe_of_an_admin_is_told_and_a_bad_one_costs_only_itself() {
    let stand = Stand::new(5108).with_env("KVMAD_AGENT_PROBE_TIMEOUT", "1s");
    executable(
        &stand.path("one/im/kvm-probes.d/host/system/mine"),
        "#!/bin/sh\necho \"MINE=\\\"$2 $3\\\"\"\n",
    );
    executable(&stand.path("one/im/kvm-probes.d/host/system/bad"), "#!/bin/sh\nsleep 600\n");
    executable(&stand.path("one/im/kvm-probes.d/host/system/pci.rb"), "#!/bin/sh\necho PCI_WAS_RUN=1\n");
    let system = part(&text(&stand.start().stdout), Kind::System);
    assert!(system.contains("MINE=\"5108 node1\""), "{system}");
    assert!(system.contains("KVMAD_PROBE_ERRORS=\"bad: bad gave no answer within 1s\""), "{system}");
    assert!(!system.contains("PCI_WAS_RUN"), "{system}");
}

#[test]
fn a_signal_asks_for_the_system_figures_and_what_is_gone_is_sent_empty() {
    let stand = Stand::new(5109);
    let probe = stand.path("one/im/kvm-probes.d/host/system/mine");
    executable(&probe, "#!/bin/sh\necho MINE=1\n");
    assert!(stand.start().status.success());
    std::fs::remove_file(probe).expect("removed");
    let pid = Pid::from_raw(stand.agent_pid().expect("runs")).expect("a number");
    stand.receiver.wait_for(Kind::Beacon, "");
    kill_process(pid, Signal::USR1).expect("signalled");
    stand.receiver.wait_for(Kind::System, "MINE=\"\"");
}

#[test]
fn a_killed_agent_leaves_no_process() {
    let stand = Stand::new(5110);
    assert!(stand.start().status.success());
    wait("virsh event", || stand.processes().len().checked_sub(2));
    let pid = Pid::from_raw(stand.agent_pid().expect("runs")).expect("a number");
    kill_process(pid, Signal::KILL).expect("signalled");
    wait("the end of all processes", || stand.processes().is_empty().then_some(()));
}

#[test]
fn an_agent_whose_program_was_replaced_goes_on_as_the_new_one() {
    let stand = Stand::new(5111);
    stand.domains(&[(7, 1, 1)]);
    assert!(stand.start().status.success());
    let pid = stand.agent_pid();
    let helper = stand.path("one/kvmad").join(std::env::consts::ARCH).join("kvmad-node");
    std::fs::copy(&helper, helper.with_extension("new")).expect("copied");
    std::fs::rename(helper.with_extension("new"), &helper).expect("renamed");
    wait("the renewal", || {
        stand.processes().iter().find(|(p, words)| Some(*p) == pid && words.contains("--again")).map(drop)
    });
    stand.receiver.forget();
    stand.receiver.wait_for(Kind::System, "HYPERVISOR=kvm");
    stand.domains(&[]);
    stand.event("event 'lifecycle' for domain 'one-7': Stopped Shutdown");
    stand.receiver.wait_for(Kind::State, "POWEROFF");
}

/// The agent itself, without the scripts that start it.
fn by_hand(stand: &Stand) -> std::process::Command {
    let helper = stand.path("one/kvmad").join(std::env::consts::ARCH).join("kvmad-node");
    let mut command = std::process::Command::new(helper);
    let id = stand.id.to_string();
    command.args(["monitor", "agent", "--hypervisor", "kvm", "--host-id", &id, "--host", "node1"]);
    command.arg("--remotes").arg(stand.path("one"));
    command
}

#[test]
fn a_second_agent_for_a_host_refuses_and_says_which_one_runs() {
    let stand = Stand::new(5114);
    assert!(stand.start().status.success());
    let first = stand.agent_pid().expect("runs");
    let output = stand.with_stdin(&mut by_hand(&stand), &stand.config());
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(said.contains(&format!("an agent for host 5114 already runs (process {first})")), "{said}");
    assert_eq!(stand.agent_pid(), Some(first));
}

#[test]
fn an_agent_that_starts_anew_while_libvirt_is_down_goes_on_and_tells_the_trouble() {
    let stand = Stand::new(5117).with_env("KVMAD_AGENT_TROUBLE_AFTER", "2s");
    stand.domains(&[(7, 1, 1)]);
    assert!(stand.start().status.success());
    kill_process(Pid::from_raw(stand.agent_pid().expect("runs")).expect("a number"), Signal::KILL)
        .expect("signalled");
    wait("its end", || stand.agent_pid().is_none().then_some(()));
    stand.fault("down", true);
    stand.receiver.forget();
    let mut command = by_hand(&stand);
    command.arg("--again");
    std::thread::scope(|scope| {
        let again = scope.spawn(|| stand.with_stdin(&mut command, ""));
        let failed = wait("a failed beacon", || {
            let all = stand.receiver.messages();
            all.into_iter().map(|(_, m)| m).find(|m| m.kind == Kind::Beacon && !m.success)
        });
        assert!(failed.text.contains("failed to connect"), "{}", failed.text);
        stand.receiver.forget();
        stand.fault("down", false);
        let system = stand.receiver.wait_for(Kind::System, "HYPERVISOR=kvm");
        let by = stand.receiver.messages().into_iter().find(|(_, m)| *m == system).map(|(by, _)| by);
        assert_eq!(by, Some("TCP"), "what makes the host good again must not be lost");
        stand.receiver.wait_for(Kind::State, "SYNC_STATE=yes");
        assert!(stand.stop().status.success());
        again.join().expect("no panic");
    });
}

#[test]
fn a_stop_during_a_start_ends_both_and_leaves_nothing() {
    let stand = Stand::new(5115).with_env("KVMAD_AGENT_LIBVIRT_TIMEOUT", "60s");
    stand.fault("hang", true);
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| stand.start());
        wait("the agent", || stand.agent_pid());
        let began = Instant::now();
        assert!(stand.stop().status.success());
        let output = starting.join().expect("no panic");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(!output.status.success() && output.stdout.is_empty());
        assert!(text(&output.stderr).contains("it was told to end"), "{}", text(&output.stderr));
    });
    wait("the end of all processes", || stand.processes().is_empty().then_some(()));
    stand.fault("hang", false);
    assert!(stand.start().status.success(), "and it can be started then");
}
