//! `kvmad domain-xml` and `kvmad explain`.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use kvmad::template::xml::Document;
use serde_json::Value;

fn kvmad() -> Command {
    let mut command = Command::cargo_bin("kvmad").expect("built");
    command.env_remove("ONE_LOCATION");
    command
}

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/domain").join(name)
}

/// Runs, gives status, stdout, stderr.
fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("a status"), text(output.stdout), text(output.stderr))
}

fn of_case(subcommand: &str, name: &str) -> Command {
    let folder = case(name);
    let mut command = kvmad();
    command
        .arg(subcommand)
        .arg(folder.join("action.xml"))
        .arg("--defaults")
        .arg(folder.join("defaults.conf"));
    for (file, option) in [("host.tmpl", "--host-template"), ("cluster.tmpl", "--cluster-template")] {
        if folder.join(file).exists() {
            command.arg(option).arg(folder.join(file));
        }
    }
    command
}

fn has_schema() -> bool {
    Path::new("/usr/bin/virt-xml-validate").exists() && Path::new("/usr/bin/xmllint").exists()
}

#[test]
fn a_domain_is_printed_and_nothing_else_on_stdout() {
    let (status, out, err) = run(&mut of_case("domain-xml", "oned-7.4/20_disk_options.alt"));
    assert_eq!((status, err.as_str()), (0, ""));
    let document = Document::parse(out).expect("well-formed");
    assert_eq!(document.root().name(), "domain");
    assert_eq!(document.root().text_at("name").as_deref(), Some("one-189"));
    assert_eq!(document.root().attribute("type"), Some("kvm"));
}

#[test]
fn options_reach_the_domain() {
    let mut command = of_case("domain-xml", "oned-7.4/20_disk_options.alt");
    command.args(["--type", "qemu", "--datastore-location", "/elsewhere", "--opennebula-version", "6.10.5"]);
    let (_, out, _) = run(&mut command);
    let document = Document::parse(out).expect("well-formed");
    assert_eq!(document.root().attribute("type"), Some("qemu"));
    let source = document.root().at("devices/disk/source").and_then(|source| source.attribute("file"));
    assert_eq!(source, Some("/elsewhere/100/189/disk.0"));
    let version = document.root().text_at("metadata/one:vm/one:opennebula_version");
    assert_eq!(version.as_deref(), Some("6.10.5"));
}

#[test]
fn as_opennebula_writes_the_hexadecimal_limit_and_without_it_the_right_one() {
    let limit = |command: &mut Command| {
        let document = Document::parse(run(command).1).expect("well-formed");
        document.root().text_at("memtune/hard_limit")
    };
    assert_eq!(limit(&mut of_case("domain-xml", "oned-7.4/35_sev_memenc.stock")).as_deref(), Some("1280"));
    let mut as_is = of_case("domain-xml", "oned-7.4/35_sev_memenc.stock");
    assert_eq!(limit(as_is.arg("--as-opennebula")).as_deref(), Some("500"));
}

#[test]
fn a_refused_vm_is_status_1_and_what_can_not_be_read_status_2() {
    let refused = fs::read_dir(case("generated")).expect("cases").filter_map(Result::ok);
    let refused =
        refused.map(|entry| entry.path()).find(|path| path.join("refused.txt").exists()).expect("one");
    let mut command = kvmad();
    command
        .arg("domain-xml")
        .arg(refused.join("action.xml"))
        .arg("--defaults")
        .arg(refused.join("defaults.conf"));
    let (status, out, err) = run(&mut command);
    assert_eq!((status, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("no domain"), "{err}");

    let folder = tempfile::tempdir().expect("a folder");
    let deep = format!("<VM>{}", "<A>".repeat(500_000));
    let big = format!("<VM><ID>1</ID><TEMPLATE>{}", "<A>x</A>".repeat(6 << 20));
    for (name, bytes, part) in [
        ("truncated", b"<VM><ID>7</ID><TEMPL".as_slice(), "line 1"),
        ("other", b"<HOST/>", "<HOST>"),
        ("entity", b"<VM>\n&x;</VM>", "line 2"),
        ("doctype", b"<!DOCTYPE a [<!ENTITY b 'c'>]><VM/>", "type definition"),
        ("latin1", b"<VM>\n<NAME>\xe4</NAME></VM>", "line 2"),
        ("utf16", b"\xff\xfe<\0V\0M\0", "UTF-16"),
        ("empty", b"", "is empty"),
        ("blank", b" \n", "is empty"),
        ("deep", deep.as_bytes(), "nested"),
        ("big", big.as_bytes(), "more than"),
        ("vm.tmpl", b"CPU = 1\nMEMORY = 1 GB\n", "line 2, column 12"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("written");
        let (status, out, err) = run(kvmad().arg("domain-xml").arg(&path));
        assert_eq!((status, out.as_str()), (2, ""), "{name}: {err}");
        assert!(err.contains(part) && err.contains(name), "{name}: {err}");
        assert!(err.len() < 3_000, "{name}");
    }
    assert_eq!(run(kvmad().args(["domain-xml", "/nonexistent"])).0, 2);
    assert_eq!(run(kvmad().arg("domain-xml")).0, 2);
}

#[test]
fn a_vm_that_opennebula_would_refuse_is_a_finding_and_not_wrong_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vm.tmpl");
    for (text, part) in [("NAME=web CPU=1\n", "MEMORY"), ("CPU = 1\nMEMORY = 1G\n", "vm.tmpl:2")] {
        fs::write(&path, text).expect("written");
        for subcommand in ["domain-xml", "explain"] {
            let (status, out, err) = run(kvmad().arg(subcommand).arg(&path));
            assert_eq!((status, out.as_str()), (1, ""), "{err}");
            assert!(err.contains("OpenNebula would refuse this VM") && err.contains(part), "{err}");
        }
    }
}

/// The status and stderr of `kvmad WORDS` when its output goes to `out`.
fn to(out: impl Into<std::process::Stdio>, words: &[&str]) -> (i32, String) {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("kvmad"));
    let output = command.args(words).stdout(out).output().expect("run");
    (output.status.code().expect("a status"), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_reader_that_went_away_is_no_trouble_and_a_full_disk_is() {
    let vm = case("oned-7.4/01_minimal.stock/action.xml");
    let vm = vm.to_str().expect("a name");
    for words in [&["completions", "bash"][..], &["domain-xml", vm], &["explain", vm]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(to(writer, words), (0, String::new()), "{words:?}");
        let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let (status, err) = to(full, words);
        assert_eq!(status, 3, "{words:?}: {err}");
        assert!(err.contains("the output can't be written") && !err.contains("panic"), "{words:?}: {err}");
    }
}

#[test]
fn a_template_becomes_a_domain_and_what_was_assumed_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vm.tmpl");
    let text = "NAME=web CPU=1 MEMORY=256 DISK=[IMAGE=debian,DEV_PREFIX=vd] NIC=[NETWORK=lan] CONTEXT=[A=b]";
    fs::write(&path, text).expect("written");
    let (status, out, err) = run(kvmad().arg("domain-xml").arg(&path));
    assert_eq!(status, 0, "{err}");
    let document = Document::parse(out).expect("well-formed");
    let root = document.root();
    assert_eq!(root.text_at("title").as_deref(), Some("web"));
    let targets: Vec<_> = root.at("devices").expect("devices").children("disk").collect();
    let targets: Vec<_> = targets.iter().filter_map(|disk| disk.child("target")?.attribute("dev")).collect();
    assert_eq!(targets, ["vda", "sda"]);
    assert!(err.contains("\"debian\"") && err.contains("\"lan\""), "{err}");
    let piped = run(kvmad().args(["domain-xml", "-"]).write_stdin(text));
    assert_eq!(piped.0, 0, "{}", piped.2);
}

#[test]
fn an_error_in_the_defaults_is_told_and_what_stands_before_it_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let conf = folder.path().join("x.conf");
    fs::write(&conf, "OS = [ ARCH = i686 ]\nVCPU = 3\nDISK = [ CACHE = none IO ]\nEMULATOR = /never\n")
        .expect("written");
    let mut command = kvmad();
    command.arg("domain-xml").arg(case("oned-7.4/01_minimal.stock/action.xml")).arg("--defaults").arg(&conf);
    let (status, out, err) = run(&mut command);
    assert_eq!(status, 0);
    assert!(out.contains("<vcpu>3</vcpu>") && !out.contains("/never"), "{out}");
    assert!(err.contains("line 3, column") && err.contains("what stands before it counts"), "{err}");
}

#[test]
fn validation_judges_by_libvirts_schema_and_says_when_it_can_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vm.tmpl");
    let template = |raw: &str| {
        let raw = format!("CPU=1 MEMORY=256 DISK=[IMAGE=a,DEV_PREFIX=vd] RAW=[TYPE=kvm,DATA=\"{raw}\"]");
        fs::write(&path, raw).expect("written");
    };
    template("<devices><rng model='virtio'><backend model='random'>/dev/urandom</backend></rng></devices>");
    let validate = |path_variable: Option<&Path>| {
        let mut command = kvmad();
        command.args(["domain-xml", "--validate"]).arg(&path);
        if let Some(value) = path_variable {
            command.env("PATH", value);
        }
        run(&mut command)
    };
    let (status, out, err) = validate(Some(folder.path()));
    assert_eq!(status, 3, "{err}");
    assert!(
        out.contains("<domain") && err.contains("could not check") && err.contains("not installed"),
        "{err}"
    );
    if has_schema() {
        assert_eq!(validate(None).0, 0, "{}", validate(None).2);
        template("<devices><rng modell='virtio'/></devices>");
        let (status, _, err) = validate(None);
        assert_eq!(status, 1, "{err}");
        assert!(err.contains("refuses"), "{err}");
    }
}

/// The row of `path` in the JSON of explain.
fn row<'a>(json: &'a Value, path: &str) -> &'a Value {
    let lines = json[0]["lines"].as_array().expect("lines");
    lines.iter().find(|line| line["path"] == path).unwrap_or(&Value::Null)
}

#[test]
fn explain_names_the_level_file_and_line_of_each_value() {
    let mut command = of_case("explain", "oned-7.4/20_disk_options.alt");
    let (status, out, err) = run(command.args(["--format", "json"]));
    assert_eq!(status, 0, "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let arch = row(&json, "/domain/os/type/@arch");
    assert_eq!((&arch["value"], &arch["kind"]), (&"x86_64".into(), &"given".into()));
    assert_eq!(arch["from"][0]["attribute"], "OS.ARCH");
    assert_eq!(arch["from"][0]["level"], "defaults file");
    assert_eq!(arch["from"][0]["line"], 6);
    assert!(arch["from"][0]["file"].as_str().expect("a file").ends_with("defaults.conf"));
    let memory = row(&json, "/domain/memory");
    assert_eq!((&memory["value"], &memory["kind"]), (&"524288".into(), &"computed".into()));
    assert_eq!(memory["from"][0]["level"], "VM");
    let cache = row(&json, "/domain/devices[1]/disk[1]/driver/@cache");
    assert_eq!((&cache["value"], &cache["from"][0]["level"]), (&"writethrough".into(), &"VM".into()));
}

#[test]
fn explain_shows_all_levels_in_a_case_with_host_and_cluster() {
    let with_both =
        fs::read_dir(case("generated")).expect("cases").filter_map(Result::ok).map(|entry| entry.path());
    let with_host =
        with_both.filter(|path| path.join("host.tmpl").exists() && path.join("domain.xml").exists());
    let mut levels = std::collections::BTreeSet::new();
    for path in with_host.take(12) {
        let name = format!("generated/{}", path.file_name().expect("a name").display());
        let (status, out, err) = run(of_case("explain", &name).args(["--format", "json", "--as-opennebula"]));
        assert_eq!(status, 0, "{name}: {err}");
        let json: Value = serde_json::from_str(&out).expect("JSON");
        for line in json[0]["lines"].as_array().expect("lines") {
            for given in line["from"].as_array().expect("from") {
                levels.insert(given["level"].as_str().expect("a level").to_owned());
            }
        }
    }
    assert!(
        levels.contains("VM") && levels.contains("host") && levels.contains("defaults file"),
        "{levels:?}"
    );
}

#[test]
fn explain_diff_shows_what_other_defaults_change_and_nothing_else() {
    let folder = case("oned-7.4/02_basic_vm.alt");
    let mut same = of_case("explain", "oned-7.4/02_basic_vm.alt");
    let (status, out, _) = run(same.arg("--diff").arg(folder.join("defaults.conf")));
    assert_eq!((status, out.as_str()), (0, "no difference\n"));
    let text = fs::read_to_string(folder.join("defaults.conf")).expect("the defaults");
    let other = tempfile::NamedTempFile::new().expect("a file");
    fs::write(other.path(), text.replace("\"writeback\"", "\"none\"")).expect("written");
    let mut changed = of_case("explain", "oned-7.4/02_basic_vm.alt");
    let (status, out, _) = run(changed.arg("--diff").arg(other.path()).args(["--format", "json"]));
    assert_eq!(status, 1);
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let changes = json[0]["changes"].as_array().expect("changes");
    assert_eq!(changes.len(), 1, "{out}");
    assert_eq!(changes[0]["path"], "/domain/devices[1]/disk[1]/driver/@cache");
    assert_eq!(
        (&changes[0]["before"]["value"], &changes[0]["after"]["value"]),
        (&"writeback".into(), &"none".into())
    );
}

#[test]
fn what_a_template_leaves_out_is_not_said_to_be_of_the_vm_and_follows_the_defaults() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("written");
        folder.path().join(name)
    };
    let vm = file(
        "vm.tmpl",
        "CPU = 1\nMEMORY = 64\nGRAPHICS = [ TYPE = vnc ]\nDISK = [ IMAGE = a, TYPE = CDROM ]\nNIC = [ NETWORK = n, BRIDGE = b ]\n",
    );
    let now = file("now.conf", "OS = [ ARCH = x86_64, MACHINE = pc ]\n");
    let then = file("then.conf", "OS = [ ARCH = x86_64, MACHINE = q35 ]\n");
    let explain = || {
        let mut command = kvmad();
        command.args(["explain", "--format", "json"]).arg(&vm).arg("--defaults").arg(&now);
        command
    };
    let (status, out, err) = run(&mut explain());
    assert_eq!(status, 0, "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(row(&json, "/domain/os/type/@machine")["from"][0]["level"], "defaults file");
    let made = ["/domain/uuid", "/domain/devices/interface/mac/@address", "/domain/devices/graphics/@port"];
    for path in made {
        assert_eq!(row(&json, path)["from"][0]["level"], "made up here", "{path}: {out}");
    }
    assert_eq!(row(&json, "/domain/devices/graphics/@type")["from"][0]["level"], "VM");
    let (status, out, err) = run(explain().arg("--diff").arg(&now));
    assert_eq!((status, out.contains("path")), (0, false), "{out} {err}");
    let (status, out, err) = run(explain().arg("--diff").arg(&then));
    assert_eq!(status, 1, "{err}");
    let json: Value = serde_json::from_str(&out).expect("JSON");
    let changes = json[0]["changes"].as_array().expect("changes");
    let change = |path: &str| {
        let found = changes.iter().find(|change| change["path"] == path).unwrap_or(&Value::Null);
        (found["before"]["value"].clone(), found["after"]["value"].clone())
    };
    assert_eq!(change("/domain/os/type/@machine"), ("pc".into(), "q35".into()));
    assert_eq!(change("/domain/devices/disk/target/@dev"), ("hda".into(), "sda".into()), "{out}");
    assert_eq!(change("/domain/uuid"), (Value::Null, Value::Null), "{out}");
}

#[test]
fn what_is_not_utf8_and_too_many_ide_disks_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let vm = folder.path().join("vm.tmpl");
    let disks =
        ["a", "b", "c", "d", "e"].map(|place| format!("DISK = [ IMAGE = a, TARGET = hd{place} ]\n")).concat();
    let text =
        [b"CPU = 1\nMEMORY = 64\nOS = [ MACHINE = pc ]\nNAME = \"b\xe4r\"\n", disks.as_bytes()].concat();
    fs::write(&vm, text).expect("written");
    let (status, _, err) = run(kvmad().arg("domain-xml").arg(&vm));
    assert_eq!(status, 0, "{err}");
    assert!(err.contains("vm.tmpl:4: NAME: the value holds bytes that are not UTF-8"), "{err}");
    assert!(err.contains("warning: 5 disks are on the IDE bus"), "{err}");
    fs::write(&vm, "CPU = 1\nMEMORY = 64\nOS = [ MACHINE = pc ]\nNAME = \"bär\"\n").expect("written");
    let (_, _, err) = run(kvmad().arg("domain-xml").arg(&vm));
    assert!(!err.contains("UTF-8") && !err.contains("IDE"), "{err}");
}

#[test]
fn explain_for_people() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("vm.tmpl"), "NAME=a CPU=0.5\nMEMORY=64 OS=[UUID=u,MACHINE=pc]\n")
        .expect("written");
    fs::write(folder.path().join("d.conf"), "OS = [\n ARCH = i686 ]\nFEATURES = [ ACPI = yes ]\n")
        .expect("written");
    let mut command = kvmad();
    command.current_dir(folder.path()).args(["explain", "vm.tmpl", "--defaults", "d.conf"]);
    let (status, out, _) = run(&mut command);
    assert_eq!(status, 0);
    let lines: Vec<&str> =
        out.lines().filter(|line| !line.contains("deployment_time")).map(str::trim_end).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn explain_diff_tells_an_element_that_goes_as_a_whole_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let ports = |count: u32| format!("OS=[ARCH=x86_64,MACHINE=q35]\nQ35_ROOT_PORTS={count}\n");
    for (name, text) in
        [("vm.tmpl", "CPU=1 MEMORY=64\n".to_owned()), ("now.conf", ports(5)), ("then.conf", ports(3))]
    {
        fs::write(folder.path().join(name), text).expect("written");
    }
    let mut command = kvmad();
    command.current_dir(folder.path());
    command.args(["explain", "vm.tmpl", "--defaults", "now.conf", "--diff", "then.conf"]);
    let (status, out, _) = run(&mut command);
    assert_eq!(status, 1);
    let told: Vec<&str> = out.lines().filter(|line| line.contains("(absent)")).collect();
    // Two root ports go; the bridge behind them takes the place of the first, and is written attribute by attribute.
    assert!(
        told.iter().any(|line| line.contains("no longer Q35_ROOT_PORTS (defaults file now.conf:2)")),
        "{out}"
    );
    assert!(!told.iter().any(|line| line.contains("/@model") && line.contains("pcie-root-port")), "{out}");
}
