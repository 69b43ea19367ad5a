//! Every action as OpenNebula's own driver calls it: the scripts do the same as when ours calls them.
//!
//! Its VMM steps go into a remote shell, arguments in single quotes, VM id and host bare behind them, stdin in a
//! here-document that adds a newline; direct calls (poll, snapshot_create, snapshot_delete, resize, exec,
//! exec_cancel) are one command line, with the document on its stdin.

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;

use crate::place::{Ended, Place, UUID};

#[derive(Debug, Clone, Copy)]
enum Form {
    Ours,
    Streamed,
    Direct,
}

/// Runs `script` as that driver does; its last two arguments are VM id and host.
fn call(place: &Place, form: Form, script: &str, args: &[String], stdin: &str) -> Ended {
    let path = place.text(&format!("one/vmm/kvm/{script}"));
    let quoted = |word: &String| format!("'{word}'");
    let escaped = |word: &String| shell_words::quote(word).into_owned();
    let (own, last) = args.split_at(args.len() - 2);
    let (line, text) = match form {
        Form::Ours => {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            return place.run(&format!("vmm/kvm/{script}"), &args, stdin);
        }
        Form::Streamed => {
            let words: Vec<_> = own.iter().map(quoted).chain(last.iter().cloned()).collect();
            let line = format!("{path} {}", words.join(" "));
            let text = format!(
                "if [ -x \"{path}\" ]; then exit_code=0; else exit 42; fi\n\
                 (cat << 'EOT' | {line}); echo \"ExitCode: $? EOF_ERR\" 1>&2; echo \"EOF_OUT\"\n{stdin}\nEOT\n"
            );
            ("bash -s".to_owned(), text)
        }
        Form::Direct => {
            let words: Vec<_> = args.iter().map(escaped).collect();
            let line = format!("if [ -x \"{path}\" ]; then {path} {}; else exit 42; fi", words.join(" "));
            (line, stdin.to_owned())
        }
    };
    let ended = shell(place, &line, &text);
    if matches!(form, Form::Streamed) { taken_apart(ended) } else { ended }
}

/// The login shell of the remote side.
fn shell(place: &Place, line: &str, stdin: &str) -> Ended {
    let mut command = place.command("", &[]);
    let mut bash = Command::new("bash");
    bash.args(["-c", line]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, value) in command.env("KVMAD", "1").get_envs() {
        bash.env(name, value.expect("a value"));
    }
    let mut child = bash.spawn().expect("bash");
    let mut pipe = child.stdin.take().expect("stdin");
    let text = stdin.to_owned();
    std::thread::spawn(move || drop(pipe.write_all(text.as_bytes())));
    Ended::of(&child.wait_with_output().expect("an end"))
}

fn taken_apart(ended: Ended) -> Ended {
    let stdout = ended.stdout.strip_suffix("EOF_OUT\n").expect("the end of stdout").to_owned();
    let (stderr, end) = ended.stderr.rsplit_once("ExitCode: ").expect("an exit code");
    let status = end.split(' ').next().and_then(|code| code.parse().ok());
    Ended { status, stdout, stderr: stderr.to_owned() }
}

/// A host with the domain one-7, or without it, and everything that an action of it needs.
fn host(running: bool) -> Place {
    let mut place = Place::new();
    let folder = place.text("run");
    place.env("EXEC_FOLDER", &folder);
    place.write("run/.keep", "").write("ds/0/7/vm.xml", "<VM/>").write("ds/0/7/context.iso", "iso");
    let domain = |devices: &str| {
        format!(
            "<domain><name>one-7</name><uuid>{UUID}</uuid><metadata><one:vm xmlns:one='u'><one:system_datastore>{}</one:system_datastore>\
             </one:vm></metadata><devices><disk device='cdrom'><source file='/c'/><target dev='hda'/></disk>{devices}</devices></domain>",
            place.text("ds/0/7")
        )
    };
    let there = "<disk><source file='/d/vdc'/><target dev='vdc'/></disk>\
                 <interface type='bridge'><mac address='02:00:00:00:00:07'/></interface>";
    let here = "<disk><source file='/d/vdb'/><target dev='vdb'/></disk>\
                <interface type='bridge'><mac address='02:00:00:00:00:08'/></interface>";
    if running {
        place.domain("one-7", 1);
    } else {
        place.write("ds/0/7/checkpoint", "saved\n").write("saved.xml", &domain(""));
    }
    place.write("before.xml", &domain(there)).write("attached.xml", &domain(&[there, here].concat()));
    place.write("detached.xml", &domain("")).write("state", "before");
    place.rule("dumpxml", "cat \"$FAKE/$(<\"$FAKE/state\").xml\"");
    place.rule("attach-device", "cat >\"$FAKE/device\"; printf attached >\"$FAKE/state\"");
    for call in ["detach-disk", "detach-interface"] {
        place.rule(call, "printf detached >\"$FAKE/state\"");
    }
    place.write("snaps/snap-1", "").rule("snapshot-list", "ls \"$FAKE/snaps\"");
    place
        .rule("snapshot-create-as", "touch \"$FAKE/snaps/$4\"")
        .rule("snapshot-delete", "rm \"$FAKE/snaps/$3\"");
    place.rule(
        "snapshot-dumpxml",
        "[[ -e $FAKE/snaps/$3 ]] && echo \"<domainsnapshot><name>$3</name><domain/></domainsnapshot>\"",
    );
    for call in ["snapshot-revert", "snapshot-current", "change-media", "setmem", "blockresize", "event"] {
        place.rule(call, if call == "event" { "exec sleep 300" } else { "exit 0" });
    }
    place.rule("qemu-agent-command", "printf '%s\\n' \"$3\" >>\"$FAKE/requests\"; case $3 in *status*) echo '{\"return\":{\"exited\":false}}' ;; *) echo '{\"return\":{\"pid\":812}}' ;; esac");
    place
}

fn action() -> String {
    "<VMM_DRIVER_ACTION_DATA><HOST>h1</HOST><VM><ID>7</ID><TEMPLATE><VCPU>1</VCPU><MEMORY>512</MEMORY><RESIZE><VCPU>1</VCPU><MEMORY>256</MEMORY></RESIZE>\
     <DISK><ATTACH>YES</ATTACH><DISK_ID>1</DISK_ID><TARGET>vdb</TARGET><TYPE>FILE</TYPE></DISK>\
     <DISK><DISK_ID>2</DISK_ID><TARGET>vdc</TARGET><SIZE>96</SIZE></DISK>\
     <NIC><ATTACH>YES</ATTACH><MAC>02:00:00:00:00:08</MAC><BRIDGE>br0</BRIDGE></NIC>\
     <QEMU_GA_EXEC><COMMAND><![CDATA[ls '-l' $(x)]]></COMMAND><STDIN>YQ==</STDIN></QEMU_GA_EXEC></TEMPLATE>\
     <USER_TEMPLATE><X><![CDATA[$HOME `id` it's]]></X></USER_TEMPLATE></VM><DATASTORE><TM_MAD>shared</TM_MAD></DATASTORE></VMM_DRIVER_ACTION_DATA>"
        .to_owned()
}

/// What an action left: the calls of virsh, the files, what the guest's agent was asked.
fn traces(place: &Place) -> Vec<String> {
    let own = place.text("");
    let calls =
        place.calls().into_iter().map(|words| words.join(" ")).filter(|call| !call.starts_with("event"));
    let files =
        ["device", "requests", "run/one-7", "ds/0/7/deployment.0", "ds/0/7/snap-3.xml", "snaps/snap-1"];
    let files = files.iter().map(|file| {
        format!("{file}: {:?}", place.path(file).exists().then(|| place.read(file).trim_end().to_owned()))
    });
    calls.chain(files).map(|line| line.replace(&own, "/")).collect()
}

#[test]
fn every_action_does_the_same_for_both_drivers() {
    let payload = base64::engine::general_purpose::STANDARD.encode(action());
    let domain = format!("<domain>\n<name>one-7</name><uuid>{UUID}</uuid></domain>");
    let mac = "02:00:00:00:00:08";
    #[rustfmt::skip]
    let table: [(&str, Form, bool, Vec<&str>, &str); 21] = [
        ("deploy", Form::Streamed, false, vec!["{}ds/0/7/deployment.0", "h1"], ""),
        ("shutdown", Form::Streamed, true, vec![UUID, "h1"], "shutdown"),
        ("cancel", Form::Streamed, true, vec![UUID, "h1"], "destroy"),
        ("save", Form::Streamed, true, vec![UUID, "{}ds/0/7/checkpoint", "h1"], "save"),
        ("restore", Form::Streamed, false, vec!["{}ds/0/7/checkpoint", "h1", UUID], "restore"),
        ("reboot", Form::Streamed, true, vec![UUID, "h1"], "reboot"),
        ("reset", Form::Streamed, true, vec![UUID, "h1"], "reset"),
        ("attach_disk", Form::Streamed, true, vec![UUID, "/d/vdb", "vdb", "1", &payload], "attach-device"),
        ("detach_disk", Form::Streamed, true, vec![UUID, "/d/vdc", "vdc", "2"], "detach-disk"),
        ("attach_nic", Form::Streamed, true, vec![UUID, mac, "br0", "-", "bridge", "one-7-1"], "attach-device"),
        ("detach_nic", Form::Streamed, true, vec![UUID, "02:00:00:00:00:07"], "detach-interface"),
        ("prereconfigure", Form::Streamed, true, vec![UUID, "hda"], "change-media"),
        ("reconfigure", Form::Streamed, true, vec![UUID, "hda", "{}ds/0/7/context.iso"], "change-media"),
        ("resize_disk", Form::Streamed, true, vec![UUID, "2", "96", &payload, "h1"], "blockresize"),
        ("snapshot_revert", Form::Streamed, true, vec![UUID, "snap-1"], "snapshot-revert"),
        ("snapshot_create", Form::Direct, true, vec![UUID, "3"], "snapshot-create-as"),
        ("snapshot_delete", Form::Direct, true, vec![UUID, "snap-1"], "snapshot-delete"),
        ("resize", Form::Direct, true, vec![UUID], "setmem"),
        ("poll", Form::Direct, true, vec![UUID, "h1"], "domstats"),
        ("exec", Form::Direct, true, vec!["7", "h1", "ls '-l' $(x)", "YQ=="], "qemu-agent-command"),
        ("exec_cancel", Form::Direct, true, vec!["7", "h1"], ""),
    ];
    for (script, form, running, args, main_call) in table {
        let outcomes = [Form::Ours, form].map(|form| {
            let place = host(running);
            if script == "exec_cancel" {
                place.write("run/one-7", "812");
            }
            let mut args: Vec<_> = args.iter().map(|word| word.replace("{}", &place.text(""))).collect();
            if !script.starts_with("exec") {
                args.extend(["7", "h1"].map(str::to_owned));
            }
            let document = if script == "deploy" { domain.clone() } else { action() };
            let ended = call(&place, form, script, &args, &document);
            assert_eq!(ended.status, Some(0), "{script} {form:?}: {ended:?}");
            assert!(main_call.is_empty() || place.count(main_call) > 0, "{script}: {:?}", place.calls());
            let stdout = if script == "poll" { ended.stdout[..7].to_owned() } else { ended.stdout };
            (stdout, traces(&place))
        });
        let [ours, theirs] = outcomes;
        assert_eq!(ours, theirs, "{script}");
    }
}

#[test]
fn every_failure_is_one_for_both_drivers_and_its_last_line_can_be_read_by_people() {
    for (script, form, args) in [
        ("attach_disk", Form::Streamed, vec!["one-7", "/d/vdb", "vdb", "1", "-"]),
        ("attach_nic", Form::Streamed, vec!["one-7", "02:00:00:00:00:08", "br0", "-", "bridge", "t"]),
        ("prereconfigure", Form::Streamed, vec!["one-7", "hda"]),
        ("reconfigure", Form::Streamed, vec!["one-7", "hda", "/nowhere"]),
        ("resize_disk", Form::Streamed, vec!["one-7", "2", "96", "-", "h1"]),
        ("snapshot_revert", Form::Streamed, vec!["one-7", "snap-1"]),
        ("snapshot_create", Form::Direct, vec!["one-7", "3"]),
        ("snapshot_delete", Form::Direct, vec!["one-7", "snap-1"]),
        ("resize", Form::Direct, vec!["one-7"]),
        ("exec", Form::Direct, vec!["7", "h1", "ls", ""]),
    ] {
        let place = host(false);
        std::fs::remove_dir_all(place.path("rules")).expect("no rules: no such domain");
        std::fs::create_dir(place.path("rules")).expect("a folder");
        let mut args: Vec<_> = args.iter().map(|word| (*word).to_owned()).collect();
        if script != "exec" {
            args.extend(["7", "h1"].map(str::to_owned));
        }
        let ended = call(&place, form, script, &args, &action());
        assert!(ended.status.is_some_and(|status| status != 0 && status != 42), "{script}: {ended:?}");
        assert_eq!(ended.stdout, "", "{script}");
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("Could not ") && last.contains("one-7"), "{script}: {}", ended.stderr);
    }
}

#[test]
fn documents_of_any_size_arrive_on_stdin() {
    let large = action().replace("<X>", &format!("<PAD>{}</PAD><X>", "x".repeat(600_000)));
    for form in [Form::Ours, Form::Streamed] {
        let place = host(true);
        let args = [UUID, "/d/vdb", "vdb", "1", "-", "7", "h1"].map(str::to_owned);
        let ended = call(&place, form, "attach_disk", &args, &large);
        assert_eq!(ended.status, Some(0), "{form:?}: {}", ended.stderr);
        assert!(place.read("device").contains("/d/vdb"));
    }
    let place = host(true);
    let ended = call(&place, Form::Direct, "resize", &["one-7", "7", "h1"].map(str::to_owned), &large);
    assert_eq!((ended.status, place.count("setmem")), (Some(0), 1), "{}", ended.stderr);
}
