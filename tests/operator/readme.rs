//! Every command in the README, and every one in the guide's blocks, is run: here, on the test bed, or in the test that is
//! named. A command that is new and not in the table fails; so does one in the table that no page has any more.

mod bed;
mod scene;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use self::scene::Scene;

/// What becomes of a command.
enum How {
    /// Run in a scene on this machine; its exit status.
    Here(i32),
    /// Run as oneadmin on the front-end of the test bed; its exit status.
    Bed(i32),
    /// Run in another test, or why it can't be.
    Elsewhere(&'static str),
}
use How::{Bed, Elsewhere, Here};

const DEB: &str = "packages::the_deb_installs_runs_upgrades_and_is_removed_without_a_trace";
const DOCTOR: &str = "the modules doctor of this binary, on the hosts of the test bed";
const WALK: &str = "the module walk of this binary, on a clean Debian";
const NO_ONE: &str = "OpenNebula's own; it is not on this machine";

const TABLE: &[(&str, How)] = &[
    ("make demo", Elsewhere("readme::bed::the_demo_runs, without the release build before it")),
    ("make test", Elsewhere("it is what runs this test")),
    ("make bench", Elsewhere("it reports and never fails; minutes")),
    ("make package", Elsewhere(DEB)),
    ("make install PREFIX=/usr/local", Elsewhere("packages::make_install_lays_everything_below_its_prefix")),
    ("apt install ./target/packages/kvmad_0.1.0-1_amd64.deb", Elsewhere(DEB)),
    ("apt install ./kvmad_0.1.0-1_amd64.deb", Elsewhere(DEB)),
    (
        "dnf install ./kvmad-0.1.0-1.x86_64.rpm",
        Elsewhere("packages::the_rpm_installs_runs_upgrades_and_is_removed_without_a_trace, by rpm"),
    ),
    ("tests/testbed/up", Elsewhere("make test")),
    (
        "tests/testbed/down --undo",
        Elsewhere("it would take the test bed away under the other tests; tests/testbed/selftest"),
    ),
    ("systemctl restart opennebula", Elsewhere(NO_ONE)),
    ("onehost sync --force", Elsewhere(NO_ONE)),
    ("sudo -u oneadmin kvmad install-remotes --dry-run", Here(0)),
    ("sudo -u oneadmin kvmad install-remotes", Here(0)),
    ("sudo -u oneadmin kvmad install-remotes --undo", Here(0)),
    ("kvmad decode < /var/log/one/oned.log", Here(0)),
    ("kvmad run --dry-run 042_DEPLOY.xml", Here(0)),
    ("kvmad run 042_DEPLOY.xml", Bed(0)),
    ("onevm show -x 42 > vm.xml", Here(0)),
    ("kvmad domain-xml --validate vm.xml", Here(0)),
    ("kvmad explain vm.xml", Here(0)),
    ("kvmad explain --diff new.conf vm.xml", Here(1)),
    ("kvmad check-conf /etc/one/vmm_exec/vmm_exec_kvm.conf /var/lib/one/remotes/etc/vmm/kvm/kvmrc", Here(0)),
    ("sudo -u oneadmin kvmad sync node1", Bed(0)),
    ("sudo -u oneadmin kvmad monitor node1", Bed(0)),
    ("kvmad sync node1 node2", Bed(0)),
    ("kvmad monitor node1", Bed(0)),
    ("kvmad migrate-check vm.xml node2", Elsewhere("migrate: the tests of migrate-check")),
    ("kvmad doctor --group kvm --group cloud --user \"$USER_OF_VMS\"", Elsewhere(WALK)),
    ("kvmad doctor node1", Elsewhere(DOCTOR)),
    ("kvmad doctor --group kvm --group cloud --user \"$USER_OF_VMS\" --fix", Elsewhere(WALK)),
    (
        "apt install libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils genisoimage curl openssh-server",
        Elsewhere(WALK),
    ),
    ("USER_OF_VMS=alice", Elsewhere(WALK)),
    ("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519", Elsewhere(WALK)),
    ("cat ~/.ssh/id_ed25519.pub >> ~/.ssh/authorized_keys", Elsewhere(WALK)),
    ("ssh -o StrictHostKeyChecking=accept-new localhost true", Elsewhere(WALK)),
    (
        "kvmad vm create first --host localhost --image \
         https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2",
        Elsewhere(WALK),
    ),
    ("kvmad vm address first --host localhost --wait 300", Elsewhere(WALK)),
    ("kvmad vm console first --host localhost", Elsewhere(WALK)),
    ("kvmad vm delete first --host localhost", Elsewhere(WALK)),
];

pub fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of the blocks of shell of a page.
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside => found.push(line.split('#').next().unwrap_or_default().trim().to_owned()),
            _ => {}
        }
    }
    found.retain(|line| !line.is_empty());
    found
}

/// Commands within the text: code that begins with a program and goes on.
fn inline(text: &str) -> Vec<String> {
    const PROGRAMS: [&str; 9] =
        ["kvmad", "make", "sudo", "apt", "dnf", "onevm", "onehost", "systemctl", "tests/testbed/down"];
    let code = text
        .lines()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let command = |code: &&str| {
        code.split_once(' ').is_some_and(|(program, _)| PROGRAMS.contains(&program))
            || *code == "tests/testbed/up"
    };
    code.filter(command).map(str::to_owned).collect()
}

fn all() -> BTreeSet<String> {
    let readme = page("README.md");
    let guide = blocks(&page("docs/guide.md"));
    blocks(&readme).into_iter().chain(inline(&readme)).chain(guide).collect()
}

#[test]
fn every_command_is_run_or_says_why_not() {
    let found = all();
    let known: BTreeSet<String> = TABLE.iter().map(|(command, _)| (*command).to_owned()).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "neither run nor named in tests/operator/readme.rs: {new:?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "in the table, but on no page: {gone:?}");
    let named = |how: &How| matches!(how, Elsewhere(why) if why.is_empty());
    assert!(!TABLE.iter().any(|(_, how)| named(how)));
}

#[test]
fn a_new_command_would_be_found() {
    let text = "Text `kvmad x --y` and `one_vmm_exec`.\n```sh\nkvmad a   # why\n\n  make b\n```\n```\nnot shell\n```\n";
    assert_eq!(blocks(text), ["kvmad a", "make b"]);
    assert_eq!(inline(text), ["kvmad x --y"]);
}

#[test]
fn the_commands_that_need_no_host_do_what_the_page_says() {
    let scene = Scene::new();
    for (command, how) in TABLE {
        let Here(expected) = how else { continue };
        let (status, out) = scene.run(command);
        let unchecked = command.contains("--validate") && status == 3 && !scene.has("virt-xml-validate");
        assert!(status == *expected || unchecked, "{command}: exit status {status}: {out}");
        assert!(!out.trim().is_empty() || command.contains('>'), "{command} said nothing");
    }
}

#[test]
fn an_action_is_recorded_and_looked_at_as_the_guide_says() {
    let scene = Scene::new();
    let guide = page("docs/guide.md");
    let script = guide.split("```").find(|block| block.contains("tee -a ")).expect("the script between");
    // For the driver stands one that says what it is asked.
    let script =
        script.trim().replace("/usr/lib/kvmad/mads/one_vmm_exec \"$@\"", "cat").replace("/var/log/one/", "");
    let line = guide.split('`').find(|code| code.starts_with("grep -E '^DEPLOY")).expect("the command");
    let recorded = "sed -n 's/^> DEPLOY  *0 /DEPLOY 42 /p' oned.log | head -n 1";
    let (status, out) = scene
        .run(&format!("{{ {recorded} | bash -c '{script}'; }} >asked && cmp asked requests.log && {line}"));
    assert_eq!(status, 0, "{out}");
    assert!(out.contains("vmm/kvm/deploy"), "the plan: {out}");
    let (_, mode) = scene.run("stat -c %a requests.log");
    assert_eq!(mode.trim(), "600", "it holds passwords");
}

#[test]
fn the_lines_for_oned_conf_are_those_of_the_snippets() {
    let snippets = format!("{}{}", page("etc/snippets/oned.conf"), page("etc/snippets/monitord.conf"));
    let pages = format!("{}{}", page("README.md"), page("docs/guide.md"));
    let shown: Vec<&str> =
        pages.lines().map(str::trim).filter(|line| line.starts_with("EXECUTABLE")).collect();
    assert!(shown.len() >= 3, "{shown:?}");
    for line in shown {
        let value = line.split('"').nth(1).expect("a value");
        assert!(snippets.contains(&format!("\"{value}\"")), "{line}");
    }
}

#[test]
fn the_page_names_the_rust_that_cargo_asks_for() {
    let cargo = page("Cargo.toml");
    let wanted =
        cargo.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a version");
    for name in ["README.md", "docs/guide.md"] {
        assert!(page(name).contains(&format!("Rust {wanted} or newer")), "{name}: {wanted}");
    }
}

#[test]
fn every_link_between_the_pages_leads_somewhere() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![project.join("README.md")];
    pages.extend(fs::read_dir(project.join("docs")).expect("docs").flatten().map(|entry| entry.path()));
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(page).expect("text");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path =
                if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            assert!(path.exists(), "{}: ({target}) leads nowhere", page.display());
            if !anchor.is_empty() {
                let headings =
                    fs::read_to_string(&path).expect("text").lines().any(|line| heading(line) == anchor);
                assert!(headings, "{}: ({target}): no such heading", page.display());
            }
        }
    }
}

/// A heading as links name it.
fn heading(line: &str) -> String {
    let text = line.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
