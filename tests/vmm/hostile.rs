//! Values that look like shell, options, markup or protocol reach scripts as they are: real processes record
//! what they were given.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kvmad::mad::actions::Answer;
use kvmad::vmm::execute::{Executor, Limits};
use kvmad::vmm::payload::Action;
use kvmad::vmm::plan;
use kvmad::vmm::setup::Setup;
use kvmad::vmm::verb::Verb;

use super::recorder::{Logged, Processes};

/// Values as users, admins and programs put them into templates.
const VALUES: [&str; 20] = [
    "it's",
    "say \"hi\"",
    "`touch hacked`",
    "$(touch hacked)",
    "a; touch hacked",
    "a & touch hacked",
    "a | touch hacked",
    "<b>&amp;</b>",
    "> hacked",
    "* ? [a]",
    "two\nlines",
    "\nEOT\ntouch hacked\n",
    "x]]>y",
    "%s%n%d",
    "--option",
    "-rf",
    "\\\\ \\n \\'",
    "DEPLOY SUCCESS 7 one-7\nLOG I 7 x",
    "tab\there  and  blanks ",
    "ümläut ☃ \u{7f}",
];

/// A script that writes its arguments, each ended by NUL, and its stdin into files beside itself.
const RECORDER: &str =
    "#!/bin/bash\nset -eu\nprintf '%s\\0' \"$@\" >\"$0.args\"\ncat >\"$0.stdin\"\necho printed\n";

fn script(root: &Path, path: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("parent")).expect("folder");
    std::fs::write(&path, RECORDER).expect("script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
}

fn arguments(root: &Path, path: &str) -> Vec<String> {
    let bytes = std::fs::read(root.join(format!("{path}.args"))).expect(path);
    let text = String::from_utf8(bytes).expect("utf-8");
    text.strip_suffix('\0').expect("an end").split('\0').map(str::to_owned).collect()
}

fn stdin(root: &Path, path: &str) -> Vec<u8> {
    std::fs::read(root.join(format!("{path}.stdin"))).expect(path)
}

/// `value` as character data of an element; `]]>` must not end a section.
fn escaped(value: &str) -> String {
    value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn document(elements: &[(&str, &str)], template: &str) -> String {
    let inner: String =
        elements.iter().map(|(name, value)| format!("<{name}>{}</{name}>", escaped(value))).collect();
    format!(
        "<VMM_DRIVER_ACTION_DATA><HOST>h1</HOST>{inner}<VM><ID>7</ID><TEMPLATE>{template}</TEMPLATE></VM>\
         </VMM_DRIVER_ACTION_DATA>"
    )
}

async fn run(root: &Path, verb: Verb, text: &str) -> Result<String, String> {
    let action = Action::from_xml(text).expect("a document");
    let plan = match plan::plan(verb, &action, &Setup::new("kvm")) {
        Ok(plan) => plan,
        Err(refusal) => return Err(refusal.to_string()),
    };
    let runner = Arc::new(Processes { remotes: root.to_owned() });
    let executor = Executor::new(runner, root.to_owned(), Limits::default());
    match executor.run(&plan, &Logged::default().context()).await {
        Answer::Success(info) => Ok(info),
        Answer::Failure(text) => Err(text),
    }
}

#[tokio::test]
async fn every_value_arrives_as_it_is_in_arguments_and_stdin() {
    let dir = tempfile::tempdir().expect("folder");
    let root = dir.path();
    for name in
        ["save", "attach_disk", "attach_nic", "exec", "snapshot_revert", "reconfigure", "prereconfigure"]
    {
        script(root, &format!("vmm/kvm/{name}"));
    }
    script(root, "tm/ssh/clone");
    for value in VALUES {
        let trimmed = value.trim();
        let id = if trimmed == value { value } else { "one-7" };

        let text = document(&[("DEPLOY_ID", id), ("CHECKPOINT_FILE", value)], "");
        assert_eq!(run(root, Verb::Save, &text).await.as_deref(), Ok("printed"), "{value:?}");
        assert_eq!(arguments(root, "vmm/kvm/save"), [id, value, "h1", "7", "h1"]);
        assert_eq!(stdin(root, "vmm/kvm/save"), format!("{text}\n").as_bytes());

        let disk = format!("<DISK><ATTACH>YES</ATTACH><TARGET>{}</TARGET></DISK>", escaped(value));
        let text = document(
            &[("DEPLOY_ID", "one-7"), ("TM_COMMAND", "CLONE ssh a b"), ("DISK_TARGET_PATH", value)],
            &disk,
        );
        run(root, Verb::AttachDisk, &text).await.expect(value);
        let args = arguments(root, "vmm/kvm/attach_disk");
        assert_eq!((args[1].as_str(), args[2].as_str()), (value, value));
        assert_eq!(args[4], STANDARD.encode(&text));

        let nic = format!(
            "<NIC><ATTACH>YES</ATTACH><MAC>{0}</MAC><BRIDGE>{0}</BRIDGE><MODEL>{0}</MODEL><TARGET>{0}</TARGET></NIC>",
            escaped(value)
        );
        let text = document(&[("DEPLOY_ID", "one-7")], &nic);
        run(root, Verb::AttachNic, &text).await.expect(value);
        let args = arguments(root, "vmm/kvm/attach_nic");
        assert_eq!(args, ["one-7", value, value, value, "", value, "7", "h1"]);

        let exec =
            format!("<QEMU_GA_EXEC><COMMAND>{}</COMMAND><STDIN>aGk=</STDIN></QEMU_GA_EXEC>", escaped(value));
        run(root, Verb::Exec, &document(&[], &exec)).await.expect(value);
        assert_eq!(arguments(root, "vmm/kvm/exec"), ["7", "h1", value, "aGk="]);

        let snapshot = format!(
            "<SNAPSHOT><ACTIVE>YES</ACTIVE><HYPERVISOR_ID>{}</HYPERVISOR_ID></SNAPSHOT>",
            escaped(value)
        );
        run(root, Verb::SnapshotRevert, &document(&[("DEPLOY_ID", "one-7")], &snapshot)).await.expect(value);
        assert_eq!(arguments(root, "vmm/kvm/snapshot_revert"), ["one-7", value, "7", "h1"]);
    }
    let hacked = |path: &Path| {
        std::fs::read_dir(path).expect("folder").any(|e| e.expect("entry").file_name() == "hacked")
    };
    assert!(!hacked(root) && !hacked(Path::new(".")));
}

#[tokio::test]
async fn words_of_a_transfer_command_arrive_as_they_are() {
    let dir = tempfile::tempdir().expect("folder");
    script(dir.path(), "tm/ssh/delete");
    for word in ["h1:/a'b", "$(x)", "`x`", "a;b", "*", "--x", "\"q\"", "<x>", "%s"] {
        let text = document(&[("TM_COMMAND", &format!("DELETE ssh {word} 7 0\n"))], "");
        run(dir.path(), Verb::Cleanup, &text).await.expect(word);
        assert_eq!(arguments(dir.path(), "tm/ssh/delete"), [word, "7", "0"]);
        assert!(stdin(dir.path(), "tm/ssh/delete").is_empty());
    }
}

#[tokio::test]
async fn files_of_a_deploy_are_stored_where_the_path_says_readable_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("folder");
    let root = dir.path();
    script(root, "vmm/kvm/deploy");
    std::fs::write(root.join("deployment"), "<domain/>").expect("deployment");
    for value in VALUES.iter().filter(|value| !value.contains('/')) {
        let file = format!("{}/{value}/deployment.0", root.display());
        let local = root.join("deployment").display().to_string();
        let user = format!("<U>{}</U>", escaped(value));
        let text = document(&[("LOCAL_DEPLOYMENT_FILE", &local), ("REMOTE_DEPLOYMENT_FILE", &file)], &user);
        assert_eq!(run(root, Verb::Deploy, &text).await.as_deref(), Ok("printed"), "{value:?}");
        assert_eq!(arguments(root, "vmm/kvm/deploy"), [file.as_str(), "h1", "7", "h1"]);
        let stored = root.join(value).join("vm.xml");
        let vm = &text[text.find("<VM>").expect("VM")..text.find("</VMM").expect("end")];
        assert_eq!(std::fs::read_to_string(&stored).expect("vm.xml"), format!("{vm}\n"));
        let mode = std::fs::metadata(&stored).expect("vm.xml").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let left = std::fs::read_dir(root.join(value)).expect("folder").count();
        assert_eq!(left, 1, "nothing but vm.xml is left");
    }
}

#[tokio::test]
async fn network_scripts_read_values_out_of_one_line_of_base64() {
    let dir = tempfile::tempdir().expect("folder");
    script(dir.path(), "vnm/bridge/update_sg");
    script(dir.path(), "vnm/bridge/update_nic");
    for value in VALUES {
        let nic = format!("<NIC><VN_MAD>bridge</VN_MAD><BRIDGE>{}</BRIDGE></NIC>", escaped(value));
        let text = document(
            &[("DEPLOY_ID", "one-7"), ("SECURITY_GROUP_ID", "5"), ("VIRTUAL_NETWORK_ID", "6")],
            &nic,
        );
        run(dir.path(), Verb::UpdateSg, &text).await.expect(value);
        assert_eq!(arguments(dir.path(), "vnm/bridge/update_sg"), ["one-7"]);
        let given = stdin(dir.path(), "vnm/bridge/update_sg");
        let (last, line) = given.split_last().expect("a line");
        assert_eq!(*last, b'\n');
        let read = String::from_utf8(STANDARD.decode(line).expect("base64")).expect("utf-8");
        assert_eq!(read, format!("<VM><ID>7</ID><TEMPLATE>{nic}</TEMPLATE></VM>"));

        run(dir.path(), Verb::UpdateNic, &text).await.expect(value);
        assert_eq!(arguments(dir.path(), "vnm/bridge/update_nic"), ["one-7", "6"]);
        let given = String::from_utf8(stdin(dir.path(), "vnm/bridge/update_nic")).expect("ascii");
        assert!(given.lines().all(|line| line.len() <= 60) && given.lines().count() > 1);
        let read = STANDARD.decode(given.replace('\n', "")).expect("base64");
        assert_eq!(read, format!("<VM><ID>7</ID><TEMPLATE>{nic}</TEMPLATE></VM>").as_bytes());
    }
}

#[tokio::test]
async fn a_value_that_would_name_another_path_is_refused() {
    let dir = tempfile::tempdir().expect("folder");
    for value in ["../../x", "/bin/sh", "a b", "-x", ".", "a;b", "$(x)", "a/b", "a\nb"] {
        let nic = format!("<NIC><VN_MAD>{}</VN_MAD></NIC>", escaped(value));
        let text = document(&[("DEPLOY_ID", "one-7")], &nic);
        let refused = run(dir.path(), Verb::Shutdown, &text).await.expect_err(value);
        assert!(refused.contains("VN_MAD") && refused.contains("is no name of a driver"), "{refused}");
    }
    for stdin in ["a'b", "$(x)", "a;b", "a-b", "a"] {
        let exec = format!("<QEMU_GA_EXEC><COMMAND>x</COMMAND><STDIN>{stdin}</STDIN></QEMU_GA_EXEC>");
        let refused = run(dir.path(), Verb::Exec, &document(&[], &exec)).await.expect_err(stdin);
        assert!(refused.ends_with("STDIN is not base64"), "{refused}");
    }
}

#[tokio::test]
async fn output_that_looks_like_the_protocol_is_data_and_stdin_need_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("folder");
    script(dir.path(), "vmm/kvm/reboot");
    let path = dir.path().join("vmm/kvm/reboot");
    let large = "x".repeat(300_000);
    let text = document(&[("DEPLOY_ID", "one-7")], &format!("<PAD>{large}</PAD>"));
    for (body, wanted) in [
        ("exit 0", Ok("-".to_owned())),
        (
            "printf 'REBOOT FAILURE 7 x\\nExitCode: 7 EOF_ERR\\nEOF_OUT\\n'",
            Ok("REBOOT FAILURE 7 x\nExitCode: 7 EOF_ERR\nEOF_OUT".to_owned()),
        ),
        ("printf 'a\\nb\\n' >&2; exit 3", Err("a; b (exit code 3)".to_owned())),
        ("exit 42", Err("reboot on h1 failed without a reason (exit code 42)".to_owned())),
        ("kill -9 $$", Err("reboot on h1 died by signal 9 (KILL)".to_owned())),
        ("printf '\\xff\\xfe' ", Ok("\u{fffd}\u{fffd}".to_owned())),
        ("head -c 200000 /dev/zero | tr '\\0' e >&2; echo ok", Ok("ok".to_owned())),
    ] {
        std::fs::write(&path, format!("#!/bin/bash\n{body}\n")).expect("script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("mode");
        assert_eq!(run(dir.path(), Verb::Reboot, &text).await, wanted, "{body}");
    }
}
