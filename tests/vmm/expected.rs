//! What each verb runs, written from the documentation of the driver protocol; the values are read from the recorded
//! documents without our parser.

use super::corpus::{self, elements, value};

/// The parts of a document that expected lines need.
struct Parts<'a> {
    text: &'a str,
    host: String,
    second: String,
    id: String,
    vm: String,
    drivers: Vec<String>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let head = &text[..text.find("<VM>").expect("VM")];
        let vm = &text[text.find("<VM>").expect("VM")..];
        let mut drivers = Vec::new();
        if head.contains("<NET_DRV>") {
            drivers.push(value(head, "NET_DRV"));
        } else {
            let all = ["NIC", "NIC_ALIAS", "PCI"].into_iter().flat_map(|name| elements(vm, name));
            for driver in all.filter_map(|nic| corpus::between(nic, "VN_MAD")) {
                if !drivers.contains(&driver.to_owned()) {
                    drivers.push(driver.to_owned());
                }
            }
        }
        Self {
            text,
            host: value(head, "HOST"),
            second: value(head, "MIGR_HOST"),
            id: quoted(&value(head, "DEPLOY_ID")),
            vm: value(vm, "ID"),
            drivers,
        }
    }

    fn get(&self, name: &str) -> String {
        value(self.text, name)
    }

    /// `vmm/kvm/SCRIPT ARGS VMID HOST <doc`.
    fn vmm(&self, script: &str, args: &str) -> String {
        self.vmm_at(&self.host, script, args)
    }

    fn vmm_at(&self, host: &str, script: &str, args: &str) -> String {
        let middle = if args.is_empty() { String::new() } else { format!("{args} ") };
        format!("vmm {host} vmm/kvm/{script} {middle}{} {} <doc", self.vm, host.trim_end_matches('+'))
    }

    fn vnm(&self, action: &str, args: &str) -> Vec<String> {
        self.vnm_at(&self.host, action, args)
    }

    fn vnm_at(&self, host: &str, action: &str, args: &str) -> Vec<String> {
        let middle = if args.is_empty() { String::new() } else { format!("{args} ") };
        self.drivers
            .iter()
            .map(|driver| format!("vnm {host} vnm/{driver}/{action} {middle}<net:64nl"))
            .collect()
    }

    /// A transfer command of the document as a step; `verb` replaces its own.
    fn tm(&self, line: &str, verb: Option<&str>, stdin: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let given = words[0].to_lowercase();
        let script = match (verb, given.split_once('.')) {
            (Some(verb), _) => verb.to_owned(),
            (None, Some((plain, _))) => format!("{given}|{plain}"),
            (None, None) => given,
        };
        format!("tm local tm/{}/{script} {} <{stdin}", words[1], words[2..].join(" "))
    }

    fn context(&self) -> Vec<String> {
        let line = self.get("TM_COMMAND");
        if line.trim().is_empty() { Vec::new() } else { vec![self.tm(&line, None, "-")] }
    }

    fn flagged(&self, names: &[&str], flag: &str) -> &'a str {
        let marked = format!("<{flag}><![CDATA[YES]]></{flag}>");
        let all = names.iter().flat_map(|name| elements(self.text, name));
        all.into_iter().find(|element| element.contains(&marked)).expect("a flagged element")
    }
}

fn quoted(text: &str) -> String {
    shell_words::quote(text).into_owned()
}

fn ignored(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| line.replacen("vnm ", "vnm! ", 1).replacen("tm ", "tm! ", 1)).collect()
}

fn undo(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("~ {line}")).collect()
}

fn one(line: String) -> Vec<String> {
    vec![line]
}

fn with_undo(lines: Vec<String>, with: Vec<String>) -> Vec<String> {
    [lines, undo(with)].concat()
}

fn reconfigure(p: &Parts<'_>) -> Vec<String> {
    let context = corpus::between(p.text, "CONTEXT").unwrap_or("");
    let target = value(context, "TARGET");
    let put =
        p.vmm("reconfigure", &format!("{} {} {}", p.id, quoted(&target), quoted(&p.get("DISK_TARGET_PATH"))));
    let take = p.vmm("prereconfigure", &format!("{} {}", p.id, quoted(&target)));
    [with_undo(one(take), one(put.clone())), p.context(), one(put)].concat()
}

fn disk_args(p: &Parts<'_>) -> String {
    let disk = p.flagged(&["DISK"], "ATTACH");
    let target = value(disk, "TARGET");
    let index = u32::from(target.as_bytes()[target.len() - 1] - b'a');
    format!("{} {} {target} {index}", p.id, p.get("DISK_TARGET_PATH"))
}

fn nic_args(p: &Parts<'_>, nic: &str) -> String {
    let or = |name: &str, or: &str| {
        let value = value(nic, name);
        quoted(if value.is_empty() { or } else { &value })
    };
    let names = [("MAC", ""), ("BRIDGE", ""), ("MODEL", "-"), ("VN_MAD", ""), ("TARGET", "")];
    let args: Vec<String> = names.into_iter().map(|(name, other)| or(name, other)).collect();
    format!("{} {}", p.id, args.join(" "))
}

/// What the documentation says that `verb` runs.
pub fn expected(verb: &str, text: &str) -> Vec<String> {
    let p = Parts::of(text);
    let h = p.host.clone();
    let id_host = format!("{} {h}", p.id);
    let clean = || p.vnm("clean", &h);
    match verb {
        "DEPLOY" => {
            let file = p.get("REMOTE_DEPLOYMENT_FILE");
            let folder = &file[..file.rfind('/').expect("a folder")];
            let store = |name: &str, what: &str| format!("vmm {h} /bin/sh store {folder} {name} <{what}");
            let mut files = one(store("vm.xml", "vm"));
            if text.contains("</VM><DATASTORE>") {
                files.push(store("ds.xml", "ds"));
            }
            let deploy = format!(
                "vmm {h} vmm/kvm/deploy {file} {h} {} {h} <file:{}",
                p.vm,
                p.get("LOCAL_DEPLOYMENT_FILE")
            );
            let new = format!("$deploy:one-{} {h}", p.vm);
            [
                p.context(),
                with_undo(p.vnm("pre", ""), clean()),
                files,
                with_undo(one(deploy), one(p.vmm("cancel", &new))),
                p.vnm("post", &new),
            ]
            .concat()
        }
        "SHUTDOWN" => [one(p.vmm("shutdown", &id_host)), ignored(clean())].concat(),
        "CANCEL" => [one(p.vmm("cancel", &id_host)), ignored(clean())].concat(),
        "SAVE" => {
            let args = format!("{} {} {h}", p.id, p.get("CHECKPOINT_FILE"));
            [one(p.vmm("save", &args)), ignored(clean())].concat()
        }
        "RESTORE" => {
            let checkpoint = p.get("CHECKPOINT_FILE");
            let back = vec![p.vmm("save", &format!("{} {checkpoint} {h}", p.id)), p.vmm("cancel", &id_host)];
            [
                p.context(),
                with_undo(p.vnm("pre", ""), clean()),
                with_undo(one(p.vmm("restore", &format!("{checkpoint} {h} {}", p.id))), back),
                p.vnm("post", &id_host),
            ]
            .concat()
        }
        "MIGRATE" => {
            let line = p.get("TM_COMMAND");
            let tm = |name: &str| {
                let mut step = p.tm(&line, Some(name), "vm:64");
                if text.contains("<NET_DRV>") {
                    let vm = &text[text.find("<VM>").expect("VM")..text.find("</VM>").expect("VM") + 5];
                    let vm = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vm);
                    step = step.replace(" <vm", &format!(" {vm} <vm"));
                }
                step
            };
            let (from, to) = (format!("{h}+"), format!("{}+", p.second));
            let bare = p.second.clone();
            [
                with_undo(one(tm("premigrate")), one(tm("failmigrate"))),
                with_undo(p.vnm_at(&to, "pre", ""), p.vnm_at(&to, "clean", &bare)),
                one(p.vmm_at(&from, "migrate", &format!("{} {bare} {h}", p.id))),
                ignored(p.vnm_at(&from, "clean", &h)),
                ignored(p.vnm_at(&to, "post", &format!("{} {bare}", p.id))),
                ignored(one(tm("postmigrate"))),
            ]
            .concat()
        }
        "REBOOT" => one(p.vmm("reboot", &id_host)),
        "RESET" => one(p.vmm("reset", &id_host)),
        "POLL" => one(p.vmm("poll", &id_host)),
        "ATTACHDISK" => {
            let back = p.tm(&p.get("TM_COMMAND_ROLLBACK"), None, "-");
            let bring = p.tm(&p.get("TM_COMMAND"), None, "-");
            [
                with_undo(one(bring), one(back)),
                one(p.vmm("attach_disk", &format!("{} $document64", disk_args(&p)))),
            ]
            .concat()
        }
        "DETACHDISK" => {
            let take = p.vmm("detach_disk", &disk_args(&p));
            let back = p.vmm("attach_disk", &format!("{} $document64", disk_args(&p)));
            [with_undo(one(take), one(back)), one(p.tm(&p.get("TM_COMMAND"), None, "-"))].concat()
        }
        "ATTACHNIC" if text.contains("<ALIAS_ID>") => {
            [with_undo(p.vnm("pre", ""), clean()), p.vnm("post", &id_host), reconfigure(&p)].concat()
        }
        "ATTACHNIC" => {
            let nic = p.flagged(&["NIC", "PCI"], "ATTACH");
            let take = p.vmm("detach_nic", &format!("{} {}", p.id, value(nic, "MAC")));
            [
                with_undo(p.vnm("pre", ""), clean()),
                with_undo(one(p.vmm("attach_nic", &nic_args(&p, nic))), one(take)),
                p.vnm("post", &id_host),
                reconfigure(&p),
            ]
            .concat()
        }
        "DETACHNIC" if text.contains("<ALIAS_ID>") => {
            [clean(), undo(p.vnm("pre", "")), undo(p.vnm("post", &id_host)), reconfigure(&p)].concat()
        }
        "DETACHNIC" => {
            let nic = p.flagged(&["NIC", "PCI"], "ATTACH");
            [
                one(p.vmm("detach_nic", &format!("{} {}", p.id, value(nic, "MAC")))),
                undo(one(p.vmm("attach_nic", &nic_args(&p, nic)))),
                undo(p.vnm("post", &id_host)),
                ignored(clean()),
                undo(p.vnm("pre", "")),
                reconfigure(&p),
            ]
            .concat()
        }
        "SNAPSHOTCREATE" => {
            let snapshot = value(p.flagged(&["SNAPSHOT"], "ACTIVE"), "SNAPSHOT_ID");
            one(p.vmm("snapshot_create", &format!("{} {snapshot}", p.id)))
        }
        "SNAPSHOTREVERT" => {
            let snapshot = value(p.flagged(&["SNAPSHOT"], "ACTIVE"), "HYPERVISOR_ID");
            let revert = p.vmm("snapshot_revert", &format!("{} {snapshot}", p.id));
            [one(revert), p.vnm("post", &id_host)].concat()
        }
        "SNAPSHOTDELETE" => {
            let snapshot = value(p.flagged(&["SNAPSHOT"], "ACTIVE"), "HYPERVISOR_ID");
            one(p.vmm("snapshot_delete", &format!("{} {snapshot}", p.id)))
        }
        "DISKSNAPSHOTCREATE" => one(p.tm(&p.get("TM_COMMAND"), Some("snap_create_live"), "-")),
        "RESIZEDISK" => {
            let disk = p.flagged(&["DISK"], "RESIZE");
            let (id, size) = (value(disk, "DISK_ID"), value(disk, "SIZE"));
            [
                one(p.tm(&p.get("TM_COMMAND"), None, "-")),
                one(format!("~ remains: the image of disk {id} has {size} MiB already")),
                one(p.vmm("resize_disk", &format!("{} {id} {size} $document64 {h}", p.id))),
            ]
            .concat()
        }
        "RESIZE" => one(p.vmm("resize", &p.id)),
        "UPDATECONF" => reconfigure(&p),
        "UPDATESG" => p.vnm("update_sg", &p.id),
        "UPDATENIC" => {
            let network = p.get("VIRTUAL_NETWORK_ID");
            let lines = p.vnm("update_nic", &format!("{} {network}", p.id));
            lines.into_iter().map(|line| line.replace("<net:64nl", "<vm:64lines")).collect()
        }
        "EXEC" => one(format!("vmm {h} vmm/kvm/exec {} {h} 'ls -l /' '' <doc", p.vm)),
        "EXEC_CANCEL" => one(p.vmm("exec_cancel", "")),
        "BACKUP" => {
            let line = p.get("TM_COMMAND");
            let live = if p.get("LCM_STATE") == "69" { "_live" } else { "" };
            let words = line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
            let after = p.tm(&line, Some(&format!("postbackup{live}")), "vm:plain");
            [
                one(p.tm(&line, Some(&format!("prebackup{live}")), "vm:plain")),
                undo(one(after.clone())),
                one(format!("ds local datastore/{}/backup {words} <ds+vm:plain", ds_mad(text))),
                ignored(one(after)),
            ]
            .concat()
        }
        "BACKUPCANCEL" => {
            let line = p.get("TM_COMMAND");
            let words = line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
            one(format!("ds local datastore/{}/backup_cancel {words} <vm:plain", ds_mad(text)))
        }
        "CLEANUP" => {
            let lines = p.get("TM_COMMAND");
            let deletes = lines.lines().filter(|line| !line.is_empty()).map(|line| p.tm(line, None, "-"));
            let cancel = p.vmm("cancel", &id_host).replacen("vmm ", "vmm! ", 1);
            [one(cancel), ignored(clean()), ignored(deletes.collect())].concat()
        }
        other => panic!("no expectation for {other}"),
    }
}

fn ds_mad(text: &str) -> String {
    value(&text[text.find("</VM>").expect("VM")..], "DS_MAD")
}
