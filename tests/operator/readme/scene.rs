//! A place in which the commands of the README find what they name: a front-end's folders, a VM, an action document.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub struct Scene {
    folder: tempfile::TempDir,
}

/// The command without the change of user.
pub fn bare(command: &str) -> String {
    command.strip_prefix("sudo -u oneadmin ").unwrap_or(command).to_owned()
}

impl Scene {
    pub fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().expect("a folder") };
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        for folder in [
            "usr/bin",
            "usr/share/kvmad",
            "one/etc/vmm_exec",
            "one/var/remotes/vmm/kvm",
            "one/var/remotes/etc/vmm/kvm",
        ] {
            fs::create_dir_all(scene.at(folder)).expect("made");
        }
        // Beside its remotes, as the package lays it.
        fs::copy(env!("CARGO_BIN_EXE_kvmad"), scene.at("usr/bin/kvmad")).expect("copied");
        symlink(project.join("remotes"), scene.at("usr/share/kvmad/remotes")).expect("linked");
        let conf = project.join("etc/vmm_exec/vmm_exec_kvm.conf");
        fs::copy(&conf, scene.at("one/etc/vmm_exec/vmm_exec_kvm.conf")).expect("copied");
        fs::copy(project.join("remotes/etc/vmm/kvm/kvmrc"), scene.at("one/var/remotes/etc/vmm/kvm/kvmrc"))
            .expect("copied");
        let text = fs::read_to_string(conf).expect("text");
        let other = text.replace("\"none\"", "\"writeback\"");
        assert_ne!(text, other, "the new defaults differ");
        fs::write(scene.at("new.conf"), other).expect("written");
        let corpus = project.join("tests/corpus/vmm-7.4-kvm");
        fs::copy(corpus.join("documents/001_DEPLOY.xml"), scene.at("042_DEPLOY.xml")).expect("copied");
        fs::copy(corpus.join("conversation.txt"), scene.at("oned.log")).expect("copied");
        let document = fs::read_to_string(corpus.join("documents/001_DEPLOY.xml")).expect("text");
        let from = document.find("<VM>").expect("a VM");
        let to = document.rfind("</VM>").expect("its end") + "</VM>".len();
        // The recording's own name for a format, which is none of libvirt's.
        let vm = document[from..to].replace("dummy_format", "qcow2");
        fs::write(scene.at("onevm.xml"), vm).expect("written");
        let onevm = format!("#!/bin/sh\ncat '{}'\n", scene.at("onevm.xml").display());
        fs::write(scene.at("usr/bin/onevm"), onevm).expect("written");
        fs::set_permissions(scene.at("usr/bin/onevm"), fs::Permissions::from_mode(0o755)).expect("its mode");
        scene
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn path(&self) -> String {
        format!("{}:{}", self.at("usr/bin").display(), std::env::var("PATH").unwrap_or_default())
    }

    /// Whether a program is there.
    pub fn has(&self, program: &str) -> bool {
        self.path().split(':').any(|folder| Path::new(folder).join(program).is_file())
    }

    /// Runs a command of the page; gives its exit status and what it said.
    pub fn run(&self, command: &str) -> (i32, String) {
        let one = self.at("one");
        let line = bare(command)
            .replace("/var/log/one/oned.log", &self.at("oned.log").display().to_string())
            .replace("/etc/one", &one.join("etc").display().to_string())
            .replace("/var/lib/one", &one.join("var").display().to_string());
        let output = Command::new("bash")
            .args(["-c", &line])
            .current_dir(self.folder.path())
            .env("PATH", self.path())
            .env("ONE_LOCATION", &one)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), said)
    }
}
