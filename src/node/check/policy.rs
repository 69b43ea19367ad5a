//! Rules of the system that may stand in the way: AppArmor, PolicyKit, SELinux, fapolicyd.

use std::path::Path;

use super::edit::Edit;
use super::host::{Host, Loaded};
use super::{Check, Finding, Group, Verdict};

const GROUP: Group = Group::Opennebula;

/// What is checked here.
pub const CHECKS: &[Check] = &[
    Check {
        id: "apparmor",
        group: GROUP,
        what: "Where AppArmor is active, libvirt's profile of VMs allows the folder of the datastores.",
        why: "Otherwise AppArmor denies QEMU some files there (backing files, links, checkpoints), and VMs do not start.",
        mend: "owner /var/lib/one/** rwk, in /etc/apparmor.d/local/abstractions/libvirt-qemu",
    },
    Check {
        id: "polkit",
        group: GROUP,
        what: "Where libvirt asks PolicyKit, a rule lets the user manage VMs without an active session (org.libvirt.unix.manage).",
        why: "The drivers have no session: libvirt refuses with \"authentication unavailable\".",
        mend: "A rule in /etc/polkit-1/rules.d, or auth_unix_rw = \"none\" in libvirtd.conf.",
    },
    Check {
        id: "selinux",
        group: GROUP,
        what: "SELinux does not enforce, or the datastores carry the label of images.",
        why: "QEMU is confined and can't open disks that are labelled otherwise.",
        mend: "semanage fcontext -a -t virt_image_t '/var/lib/one/datastores(/.*)?' and restorecon -R, or permissive mode.",
    },
    Check {
        id: "fapolicyd",
        group: GROUP,
        what: "No fapolicyd decides which programs may run, or it trusts the helper of the remotes.",
        why: "It stops kvmad-node below /var/tmp: every action then takes the slow way, and there is no monitoring agent.",
        mend: "fapolicyd-cli --file add REMOTES/kvmad/ --trust-file kvmad, then fapolicyd-cli --update",
    },
];

/// All of them.
pub async fn all(host: &Host) -> Vec<Finding> {
    vec![apparmor(host), polkit(host), selinux(host), fapolicyd(host)]
}

const ABSTRACTION: &str = "/etc/apparmor.d/abstractions/libvirt-qemu";
const LOCAL: &str = "/etc/apparmor.d/local/abstractions/libvirt-qemu";

fn apparmor(host: &Host) -> Finding {
    let id = "apparmor";
    let enabled = host.root.line("/sys/module/apparmor/parameters/enabled");
    if enabled.as_deref() != Some("Y") {
        return Finding::skipped(id, GROUP, "AppArmor is not active");
    }
    if let Loaded::Read(conf) = &host.qemu
        && conf.text("security_driver").as_deref() == Some("none")
    {
        return Finding::skipped(id, GROUP, "security_driver = \"none\" in qemu.conf: VMs are not confined");
    }
    let Some(abstraction) = host.root.read(ABSTRACTION) else {
        return Finding::skipped(id, GROUP, format!("{ABSTRACTION} is not there: libvirt has no profile"));
    };
    let folder = host.wanted.datastores.as_str();
    let local = host.root.read(LOCAL).unwrap_or_default();
    if let Some(rule) = abstraction.lines().chain(local.lines()).find(|line| allows(line, folder)) {
        return Finding::ok(id, GROUP, format!("rule `{}`", rule.trim()));
    }
    let includes = |line: &str| {
        line.trim_start_matches([' ', '\t', '#']).starts_with("include")
            && line.contains("local/abstractions/libvirt-qemu")
    };
    let file = if abstraction.lines().any(includes) { LOCAL } else { ABSTRACTION };
    // OpenNebula's own rule names the home of oneadmin, which holds the datastores.
    let below = if folder.starts_with("/var/lib/one/") { "/var/lib/one" } else { folder };
    let edit = Edit::Line { file: file.into(), line: format!("  owner {below}/** rwk,") };
    let mend = format!("{}; VMs that start from then on have it", edit.command());
    let evidence = format!("AppArmor is active and no rule of {ABSTRACTION} allows {folder}");
    Finding::bad(id, GROUP, Verdict::Failure, evidence, mend).with_edits([edit])
}

/// Whether a rule lets files below `folder` be read and written: `[owner] PREFIX/** rw...,`.
fn allows(line: &str, folder: &str) -> bool {
    let line = line.trim();
    if line.starts_with('#') || line.starts_with("deny") || line.starts_with("audit deny") {
        return false;
    }
    let mut words =
        line.split_whitespace().skip_while(|word| ["owner", "audit", "allow", "file"].contains(word));
    let (Some(path), Some(rights)) = (words.next(), words.next()) else { return false };
    let path = path.trim_matches('"');
    let Some(prefix) = path.strip_suffix("/**").or_else(|| path.strip_suffix("/{,**}")) else { return false };
    let covers = Path::new(folder).starts_with(if prefix.is_empty() { "/" } else { prefix });
    covers && rights.contains('r') && rights.contains('w')
}

const ACTION: &str = "org.libvirt.unix.manage";
const RULE: &str = "/etc/polkit-1/rules.d/50-org.libvirt.unix.manage-kvmad.rules";
const RULES: [&str; 2] = ["/etc/polkit-1/rules.d", "/usr/share/polkit-1/rules.d"];
const AUTHORITIES: [&str; 2] =
    ["/etc/polkit-1/localauthority/50-local.d", "/var/lib/polkit-1/localauthority/50-local.d"];

fn polkit(host: &Host) -> Finding {
    let id = "polkit";
    if !host.root.exists("/usr/share/polkit-1/actions/org.libvirt.unix.policy") {
        return Finding::skipped(id, GROUP, "libvirt has no action in PolicyKit");
    }
    let auth = host.libvirtd.known().ok().and_then(|conf| conf.text("auth_unix_rw"));
    if auth.as_deref().is_some_and(|auth| auth != "polkit") {
        let evidence = format!("auth_unix_rw = {:?} in {}", auth.unwrap_or_default(), host.libvirtd_file);
        return Finding::ok(id, GROUP, evidence);
    }
    if let Some(file) = rule_for(host) {
        return Finding::ok(id, GROUP, format!("a rule in {file}"));
    }
    let answered = host.capabilities.is_ok();
    if answered && (!host.root_rights || host.user != "root") {
        return Finding::ok(id, GROUP, format!("libvirt answers {}", host.user));
    }
    let Ok(Some(account)) = &host.account else {
        return Finding::unchecked(id, GROUP, format!("{} is not known", host.user), "");
    };
    if account.who.uid == 0 {
        return Finding::skipped(id, GROUP, "root needs no rule");
    }
    let user = account.who.name.replace(['"', '\\', '\n'], "_");
    let content = format!(
        "// Made by kvmad doctor: the drivers' user manages VMs without an active session.\n\
         polkit.addRule(function(action, subject) {{\n    \
             if (action.id == \"{ACTION}\" && subject.user == \"{user}\") {{\n        \
                 return polkit.Result.YES;\n    \
             }}\n\
         }});\n"
    );
    let evidence =
        format!("no rule of PolicyKit lets {} use {ACTION}, and libvirt gives it no answer", host.user);
    let edit = Edit::File { file: RULE.into(), content };
    let mend = format!("a rule in {RULE} that lets {} use {ACTION}", host.user);
    Finding::bad(id, GROUP, Verdict::Failure, evidence, mend).with_edits([edit])
}

/// The first file with a rule for the user or one of its groups.
fn rule_for(host: &Host) -> Option<String> {
    let Ok(Some(account)) = &host.account else { return None };
    let quoted = |name: &String| [format!("\"{name}\""), format!("'{name}'")];
    let names: Vec<String> =
        std::iter::once(&account.who.name).chain(&account.groups).flat_map(quoted).collect();
    let matches = |text: &str| {
        let bare =
            text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
        bare.contains(ACTION) && names.iter().any(|name| bare.contains(name.as_str()))
    };
    for folder in RULES {
        for name in host.root.names(folder).iter().filter(|name| name.ends_with(".rules")) {
            let file = format!("{folder}/{name}");
            if host.root.read(&file).is_some_and(|text| matches(&text)) {
                return Some(file);
            }
        }
    }
    let identities: Vec<String> = std::iter::once(format!("unix-user:{}", account.who.name))
        .chain(account.groups.iter().map(|group| format!("unix-group:{group}")))
        .collect();
    for folder in AUTHORITIES {
        for name in host.root.names(folder).iter().filter(|name| name.ends_with(".pkla")) {
            let file = format!("{folder}/{name}");
            let text = host.root.read(&file).unwrap_or_default();
            if text.contains(ACTION) && identities.iter().any(|who| text.contains(who)) {
                return Some(file);
            }
        }
    }
    None
}

fn selinux(host: &Host) -> Finding {
    let id = "selinux";
    match host.root.line("/sys/fs/selinux/enforce").as_deref() {
        None => Finding::skipped(id, GROUP, "SELinux is not active"),
        Some("0") => Finding::ok(id, GROUP, "SELinux is permissive"),
        Some(_) => {
            let folder = &host.wanted.datastores;
            let mut label = vec![0; 1024];
            let read = rustix::fs::getxattr(host.root.path(folder), "security.selinux", &mut label);
            let label = read.ok().and_then(|length| label.get(..length)).map(String::from_utf8_lossy);
            let label =
                label.as_deref().map(|text| text.trim_end_matches('\0').to_owned()).unwrap_or_default();
            if ["virt_image_t", "svirt_image_t", "nfs_t", "fusefs_t", "cephfs_t"]
                .iter()
                .any(|kind| label.contains(kind))
            {
                return Finding::ok(id, GROUP, format!("SELinux enforces; {folder} is labelled {label}"));
            }
            let evidence = format!("SELinux enforces; {folder} is labelled {label:?}");
            let mend = format!(
                "semanage fcontext -a -t virt_image_t {} && restorecon -R {}",
                shell_words::quote(&format!("{folder}(/.*)?")),
                shell_words::quote(folder)
            );
            Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
        }
    }
}

fn fapolicyd(host: &Host) -> Finding {
    let id = "fapolicyd";
    let runs = host.root.names("/proc").iter().any(|pid| {
        pid.bytes().all(|b| b.is_ascii_digit())
            && host.root.line(format!("/proc/{pid}/comm")).as_deref() == Some("fapolicyd")
    });
    if !runs {
        return Finding::skipped(id, GROUP, "fapolicyd does not run");
    }
    let remotes = &host.wanted.remotes;
    let trusts = |folder: &str| {
        host.root.names(folder).iter().any(|name| {
            let text = host.root.read(format!("{folder}/{name}")).unwrap_or_default();
            text.lines().any(|line| !line.trim_start().starts_with('#') && line.contains(remotes.as_str()))
        })
    };
    if trusts("/etc/fapolicyd/trust.d") || trusts("/etc/fapolicyd/rules.d") {
        return Finding::ok(id, GROUP, format!("fapolicyd runs and has rules for {remotes}"));
    }
    let evidence = format!("fapolicyd runs and has no rule for {remotes}");
    let mend = format!(
        "fapolicyd-cli --file add {remotes}/kvmad/ --trust-file kvmad && fapolicyd-cli --update (again after each update of the remotes), or a rule `allow perm=execute uid={} : dir={remotes}/kvmad/`",
        host.user
    );
    Finding::bad(id, GROUP, Verdict::Warning, evidence, mend)
}

#[cfg(test)]
mod tests {
    use super::allows;

    #[test]
    fn a_rule_counts_when_it_covers_the_folder_for_reading_and_writing() {
        let folder = "/var/lib/one/datastores";
        for rule in [
            "  owner /var/lib/one/** rw,",
            "/var/lib/one/datastores/** rwk,",
            "\"/var/lib/one/**\" rwlk,",
            "/var/lib/one/datastores/{,**} rw,",
            "/** rw,",
        ] {
            assert!(allows(rule, folder), "{rule}");
        }
        for rule in [
            "#  owner /var/lib/one/** rw,",
            "deny /var/lib/one/** rw,",
            "/var/lib/one/** r,",
            "/var/lib/one2/** rw,",
            "/var/lib/on/** rw,",
            "/var/lib/one/datastores/7/** rw,",
            "capability net_admin,",
            "",
        ] {
            assert!(!allows(rule, folder), "{rule}");
        }
    }
}
