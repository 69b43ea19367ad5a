//! What keeps programs and disks from being used: AppArmor, PolicyKit, SELinux, fapolicyd, logind.

use super::*;

#[tokio::test]
async fn an_active_apparmor_needs_a_rule_for_the_datastores() {
    let stand = Stand::healthy();
    stand.put("sys/module/apparmor/parameters/enabled", "Y\n");
    stand.put(
        "etc/apparmor.d/abstractions/libvirt-qemu",
        "  /dev/kvm rw,\n  include if exists <local/abstractions/libvirt-qemu>\n",
    );
    let rule = "owner /var/lib/one/** rwk,";
    stand.fails("apparmor", Verdict::Failure, "no rule of", rule).await;
    stand.mends("apparmor").await;
    assert_eq!(
        stand.root().read("/etc/apparmor.d/local/abstractions/libvirt-qemu").as_deref(),
        Some(format!("  {rule}\n").as_str())
    );
    stand.remove("etc/apparmor.d/local").put("etc/apparmor.d/abstractions/libvirt-qemu", "  /dev/kvm rw,\n");
    stand.mends("apparmor").await;
    assert!(
        stand
            .root()
            .read("/etc/apparmor.d/abstractions/libvirt-qemu")
            .is_some_and(|text| text.contains(rule))
    );
    stand.put("etc/libvirt/qemu.conf", "security_driver = \"none\"\n");
    assert_eq!(stand.of("apparmor").await.verdict, Verdict::Skipped);
}

#[tokio::test]
async fn polkit_needs_a_rule_unless_the_daemon_does_not_ask_it() {
    let stand = Stand::healthy().answers("capabilities", Err((1, "authentication unavailable")));
    stand.put("usr/share/polkit-1/actions/org.libvirt.unix.policy", "<x/>");
    assert_eq!(stand.of("polkit").await.verdict, Verdict::Ok, "auth_unix_rw is none");
    stand.put("etc/libvirt/libvirtd.conf", "");
    let other =
        "polkit.addRule(f(a, s) { if (a.id == \"org.libvirt.unix.manage\" && s.user == \"oneadmin2\") });";
    stand.put("usr/share/polkit-1/rules.d/60-libvirt.rules", other);
    stand.fails("polkit", Verdict::Failure, "lets oneadmin use", "/etc/polkit-1/rules.d/").await;
    stand.mends("polkit").await;
    stand.remove("etc/polkit-1");
    stand.put(
        "etc/polkit-1/localauthority/50-local.d/one.pkla",
        "Identity=unix-user:oneadmin\nAction=org.libvirt.unix.manage\n",
    );
    assert_eq!(stand.of("polkit").await.verdict, Verdict::Ok);
}

#[tokio::test]
async fn policy_tools_that_stop_programs_or_disks_are_named() {
    let stand = Stand::healthy();
    stand.put("sys/fs/selinux/enforce", "1").put("proc/77/comm", "fapolicyd\n");
    stand.fails("selinux", Verdict::Warning, "SELinux enforces", "virt_image_t").await;
    stand.fails("fapolicyd", Verdict::Warning, "no rule for /var/tmp/one", "--trust-file kvmad").await;
    stand
        .put("sys/fs/selinux/enforce", "0")
        .put("etc/fapolicyd/rules.d/80-one.rules", "allow perm=execute all : dir=/var/tmp/one/\n");
    assert_eq!(stand.of("selinux").await.verdict, Verdict::Ok);
    assert_eq!(stand.of("fapolicyd").await.verdict, Verdict::Ok);
}

#[tokio::test]
async fn logind_that_ends_processes_is_a_failure_unless_the_user_lingers() {
    let stand = Stand::healthy();
    stand
        .put("run/systemd/seats/seat0", "")
        .put("etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n");
    assert_eq!(stand.of("kill-user-processes").await.verdict, Verdict::Ok);
    stand.put("etc/systemd/logind.conf.d/50.conf", "[Login]\nKillUserProcesses=yes\n");
    stand.fails("kill-user-processes", Verdict::Failure, "50.conf", "loginctl enable-linger oneadmin").await;
    stand.put("run/systemd/logind.conf.d/60.conf", "[Login]\nKillUserProcesses = no\n");
    assert_eq!(stand.of("kill-user-processes").await.verdict, Verdict::Ok, "the last file counts");
    stand.remove("run/systemd/logind.conf.d").put("var/lib/systemd/linger/oneadmin", "");
    assert_eq!(stand.of("kill-user-processes").await.verdict, Verdict::Ok);
}
