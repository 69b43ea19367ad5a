//! The .deb and .rpm, installed in clean roots: they run from there, are upgraded, and leave nothing.
//!
//! Made from the stage (`KVMAD_STAGE`, else `target/stage`) by `packaging/package`; the roots are copies of a minimal
//! Debian that `tests/operator/clean-root` makes once.

pub mod root;

use std::fs;
use std::path::{Path, PathBuf};

use self::root::{Root, project, run};

/// A package of `version` made from the stage, `deb` or `rpm`. Made again when the stage is newer.
pub fn package(version: &str, kind: &str) -> PathBuf {
    let stage = std::env::var_os("KVMAD_STAGE").map_or_else(|| project().join("target/stage"), PathBuf::from);
    let program = stage.join("bin/kvmad");
    assert!(program.is_file(), "{}: nothing is staged: run make stage", stage.display());
    let folder = project().join("target/test-packages").join(version);
    fs::create_dir_all(&folder).expect("a folder");
    let lock = fs::File::create(folder.join("lock")).expect("a lock");
    lock.lock().expect("locked");
    let age = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let there = |kind: &str| {
        let entries = fs::read_dir(&folder).expect("readable").flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|end| end == kind)).max_by_key(|path| age(path))
    };
    let fresh = |path: PathBuf| (age(&path) > age(&program)).then_some(path);
    if there("deb").and_then(fresh).is_none() || there("rpm").and_then(fresh).is_none() {
        let script = project().join("packaging/package");
        run(std::process::Command::new(script).arg(&stage).arg(&folder).arg(version));
    }
    there(kind).unwrap_or_else(|| panic!("no {kind} in {}", folder.display()))
}

const VMM: &str = "/usr/lib/kvmad/mads/one_vmm_exec";
const IM: &str = "/usr/lib/kvmad/mads/one_im_exec";

/// Both drivers answer INIT, refuse a request for a host that nobody knows with a reason, and end with FINALIZE.
fn drivers_run(root: &Root) {
    let document =
        fs::read(project().join("tests/corpus/vmm-7.4-kvm/documents/002_REBOOT.xml")).expect("a document");
    let document = String::from_utf8(document).expect("text");
    let host = document.split("<HOST>").nth(1).and_then(|rest| rest.split("</HOST>").next()).expect("a host");
    let document = document.replace(&format!("<HOST>{host}</HOST>"), "<HOST>no-such-host.invalid</HOST>");
    let id = document.split("<ID>").nth(1).and_then(|rest| rest.split("</ID>").next()).expect("an id");
    let payload = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &document);
    let said = root.talk(
        &[VMM, "-t 15 -r 0 kvm -p"],
        &["INIT", &format!("REBOOT  {id} {payload} "), "FINALIZE"],
        &format!("REBOOT FAILURE {id} "),
    );
    assert_eq!(said.lines().next(), Some("INIT SUCCESS - -"), "{said}");
    let reply = said.lines().find(|line| line.starts_with("REBOOT FAILURE")).expect("a reply");
    assert!(reply.contains("no-such-host.invalid"), "the reason names the host: {reply}");

    let said = root.talk(&[IM, "-r 3 -t 15 -w 90 kvm"], &["INIT", "FINALIZE"], "INIT SUCCESS");
    assert_eq!(said.lines().next(), Some("INIT SUCCESS - -"), "{said}");
}

/// The helper for hosts is one file without a dynamic linker.
fn helper_is_static(root: &Root) {
    let cpu = std::env::consts::ARCH;
    let path = format!("/usr/share/kvmad/remotes/kvmad/{cpu}/kvmad-node");
    assert!(root.sh(&format!("{path} version")).starts_with("kvmad-node "));
    let bytes = fs::read(root.at(&path)).expect("the helper");
    assert!(!bytes.windows(8).any(|text| text == b"/ld-linu"), "{path} asks for a dynamic linker");
}

/// The remotes in the package are those of the repository with the helper, links and modes included.
fn remotes_are_whole(root: &Root) {
    let listing = |folder: &Path| {
        let all = run(std::process::Command::new("find").current_dir(folder).args([
            ".",
            "-not",
            "-path",
            "./kvmad/*/*",
            "-not",
            "-path",
            "./.kvmad*",
            "-not",
            "-name",
            "x86_64",
            "-not",
            "-name",
            "aarch64",
            "-printf",
            "%P %y %l %m\\n",
        ]));
        let mut lines: Vec<String> =
            all.lines().filter(|line| !line.starts_with(' ')).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(listing(&root.at("/usr/share/kvmad/remotes")), listing(&project().join("remotes")));
}

/// An OpenNebula front-end as far as a package could touch it.
fn like_a_front_end(root: &Root) {
    for (path, text) in [
        ("/etc/one/oned.conf", "VM_MAD = [ NAME = \"kvm\" ]\n"),
        ("/usr/lib/one/mads/one_vmm_exec", "OpenNebula's own"),
        ("/var/lib/one/remotes/vmm/kvm/deploy", "OpenNebula's own"),
        ("/var/lib/one/remotes/im/run_probes", "OpenNebula's own"),
    ] {
        root.write(path, text);
    }
    root.sh("useradd --system --home-dir /var/lib/one oneadmin && chown -R oneadmin: /var/lib/one");
}

/// `install-remotes` works from the package as oneadmin, twice and back.
fn remotes_are_laid_and_taken_back(root: &Root) {
    let kvmad = "setpriv --reuid=oneadmin --regid=oneadmin --clear-groups kvmad install-remotes";
    let before = root.files("/var/lib/one");
    assert!(root.sh(kvmad).contains("replaced    vmm/kvm/deploy"));
    assert!(root.sh(kvmad).ends_with("nothing to do\n"));
    assert!(root.sh("cat /var/lib/one/remotes/vmm/kvm/deploy").starts_with("#!/bin/bash"));
    root.sh(&format!("{kvmad} --undo"));
    assert_eq!(root.files("/var/lib/one"), before);
}

/// Every page is read without a complaint, and found by its name.
fn manual_is_there(root: &Root) {
    let complaints = root.sh("for page in /usr/share/man/man*/kvmad* /usr/share/man/man8/one_*; do \
         man --warnings=w -E UTF-8 -l \"$page\" 2>&1 >/dev/null | sed \"s|^|$page: |\"; done");
    assert_eq!(complaints, "");
    assert!(root.sh("man kvmad-run | cat").contains("--dry-run"));
    assert!(root.sh("man kvmad.conf | cat").contains("connect_timeout"));
    assert!(root.sh("man one_vmm_ssh | cat").contains("--generate-domain"));
}

/// The shells complete a subcommand from the files of the package.
fn shells_complete(root: &Root) {
    let bash = ". /usr/share/bash-completion/bash_completion; _completion_loader kvmad; COMP_WORDS=(kvmad install-r); \
                COMP_CWORD=1; _kvmad kvmad install-r kvmad; echo \"${COMPREPLY[*]}\"";
    assert_eq!(root.words(&["bash", "-c", bash]).trim(), "install-remotes");
    let fish = root.at("/usr/share/fish/vendor_completions.d/kvmad.fish");
    let script = "source $argv[1]; complete -C 'kvmad install-r'";
    let said = run(std::process::Command::new("fish").args(["--no-config", "-c", script]).arg(fish));
    assert!(said.starts_with("install-remotes"), "{said}");
    let zsh = root.at("/usr/share/zsh/site-functions").canonicalize().expect("a folder");
    let script =
        "fpath=($1 $fpath); autoload -Uz compinit; compinit -u -D; print $_comps[kvmad]; autoload +X _kvmad";
    let said = run(std::process::Command::new("zsh").args(["-f", "-c", script, "zsh"]).arg(zsh));
    assert_eq!(said.trim(), "_kvmad");
}

#[test]
#[ignore = "needs root and Debian's packages: make test"]
fn the_deb_installs_runs_upgrades_and_is_removed_without_a_trace() {
    let root = Root::new();
    like_a_front_end(&root);
    let before = root.files("/");
    root.copy(&package("0.1.0", "deb"), "/tmp/old.deb");
    root.copy(&package("0.1.1", "deb"), "/tmp/new.deb");
    // The dependencies are in the root; apt says so when one is not.
    let apt = "apt-get -q -y -o Dpkg::Use-Pty=0";
    root.sh(&format!("{apt} install /tmp/old.deb"));
    drivers_run(&root);
    helper_is_static(&root);
    remotes_are_whole(&root);
    remotes_are_laid_and_taken_back(&root);
    manual_is_there(&root);
    shells_complete(&root);
    assert!(root.sh("cat /usr/share/kvmad/snippets/oned.conf").contains(VMM));
    assert!(root.sh("cat /usr/share/kvmad/snippets/monitord.conf").contains(IM));

    root.sh("echo '# an edit' >>/etc/one/kvmad.conf; kvmad install-remotes >/dev/null");
    let said = root.sh(&format!("{apt} install /tmp/new.deb 2>&1"));
    assert!(
        said.contains("kvmad install-remotes; then restart"),
        "an upgrade says what is left to do: {said}"
    );
    assert_eq!(root.sh("dpkg-query -W -f '${Version}' kvmad"), "0.1.1-1");
    assert!(root.sh("cat /etc/one/kvmad.conf").ends_with("# an edit\n"), "the admin's settings stay");
    assert_eq!(
        root.sh("dpkg --verify kvmad").lines().filter(|line| !line.ends_with("kvmad.conf")).count(),
        0
    );
    drivers_run(&root);

    let said = root.sh(&format!("{apt} remove kvmad 2>&1"));
    assert!(said.contains("its scripts still lie over /var/lib/one/remotes"), "{said}");
    assert!(root.at("/etc/one/kvmad.conf").is_file(), "settings stay until they are purged");
    root.sh(&format!("{apt} install /tmp/old.deb && kvmad install-remotes --undo && {apt} purge kvmad"));
    root.sh("rm /tmp/old.deb /tmp/new.deb");
    assert_eq!(root.files("/"), before);
}

#[test]
#[ignore = "needs root and Debian's packages: make test"]
fn the_rpm_installs_runs_upgrades_and_is_removed_without_a_trace() {
    let root = Root::new();
    like_a_front_end(&root);
    let (old, new) = (package("0.1.0", "rpm"), package("0.1.1", "rpm"));
    let asked = |words: &[&str]| run(std::process::Command::new("rpm").args(words).arg(&old));
    let contents = asked(&["-qlp"]);
    for path in [VMM, IM, "/usr/bin/kvmad", "/usr/share/man/man1/kvmad-run.1.gz", "/etc/one/kvmad.conf"] {
        assert!(contents.lines().any(|line| line == path), "{path}: {contents}");
    }
    assert_eq!(asked(&["-qcp"]).trim(), "/etc/one/kvmad.conf");
    assert!(
        contents.lines().all(|line| !line.starts_with("/usr/lib/one") && !line.starts_with("/var/lib/one"))
    );
    assert!(asked(&["-qp", "--requires"]).contains("openssh-clients"));

    // Debian's rpm wants to be told that this is meant; the names of its dependencies are not Debian's.
    let install = ["--force-debian", "--nodeps"];
    let rpm = |options: &[&str], words: &[&str]| {
        let mut command = std::process::Command::new("rpm");
        command.arg("--root").arg(root.path()).args(options).args(words);
        run(&mut command)
    };
    rpm(&[], &["--initdb"]);
    // Folders that the base system of those who use rpm has.
    root.sh("mkdir -p /usr/share/zsh/site-functions /usr/share/fish/vendor_completions.d");
    let before = root.files("/");
    rpm(&install, &["-i", old.to_str().expect("text")]);
    drivers_run(&root);
    helper_is_static(&root);
    remotes_are_whole(&root);
    remotes_are_laid_and_taken_back(&root);
    shells_complete(&root);
    rpm(&install, &["-U", new.to_str().expect("text")]);
    assert_eq!(rpm(&[], &["-q", "kvmad"]).trim(), format!("kvmad-0.1.1-1.{}", std::env::consts::ARCH));
    assert_eq!(rpm(&[], &["-V", "--nodeps", "kvmad"]), "");
    remotes_are_whole(&root);
    drivers_run(&root);
    rpm(&install, &["-e", "kvmad"]);
    assert_eq!(root.files("/"), before);
}

#[test]
#[ignore = "needs root and Debian's packages: make test"]
fn make_install_lays_everything_below_its_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let stage = std::env::var_os("KVMAD_STAGE").map_or_else(|| project().join("target/stage"), PathBuf::from);
    let lay = project().join("packaging/lay");
    for _ in 0..2 {
        run(std::process::Command::new(&lay).args([&stage, folder.path()]).arg("/opt/kvmad"));
    }
    let top: Vec<_> =
        fs::read_dir(folder.path()).expect("readable").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(top, ["opt"]);
    let to = folder.path().join("opt/kvmad");
    let snippet = fs::read_to_string(to.join("share/kvmad/snippets/oned.conf")).expect("a snippet");
    assert!(snippet.contains("\"/opt/kvmad/lib/kvmad/mads/one_vmm_exec\""), "{snippet}");
    let docs = to.join("share/doc/kvmad");
    for (page, folder) in [("README.md", "."), ("docs/README.md", "docs"), ("docs/architecture.md", "docs")] {
        let text = fs::read_to_string(docs.join(page)).expect("a page");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for link in links.filter(|link| !link.is_empty() && !link.contains("://")) {
            assert!(docs.join(folder).join(link).exists(), "{page}: ({link}) leads nowhere");
        }
    }
    // The program finds its remotes wherever it was laid.
    let remotes = folder.path().join("remotes");
    fs::create_dir_all(remotes.join("vmm")).expect("made");
    let said = run(std::process::Command::new(to.join("bin/kvmad"))
        .args(["install-remotes", "--dry-run", "--remotes"])
        .arg(&remotes));
    assert!(said.contains("added       vmm/kvm/deploy"), "{said}");
    assert!(run(std::process::Command::new(to.join("lib/kvmad/mads/one_vmm_sh")).arg("kvm")).is_empty());
}
