//! Sessions: ssh, shells, limits, hugepages.

use super::*;

#[tokio::test]
async fn sessions_that_are_too_few_limits_that_are_too_low_and_shells_that_print() {
    let stand = Stand::healthy().answers("/bin/bash -c exit 0", Ok("Welcome\n"));
    stand.put(
        "etc/ssh/sshd_config",
        "Include /etc/ssh/sshd_config.d/*.conf\nMaxSessions 64\nMatch user x\nMaxStartups 1\n",
    );
    stand.put("etc/ssh/sshd_config.d/10.conf", "maxsessions=2\n");
    stand
        .fails("ssh-sessions", Verdict::Warning, "MaxSessions 2, MaxStartups 10:30:100", "MaxSessions 64")
        .await;
    stand.put("proc/self/limits", "Max processes 10 500 processes\nMax open files 1024 1024 files\n");
    stand.fails("limits", Verdict::Warning, "1024 open files, 500 processes", "limits.d").await;
    stand
        .fails("quiet-shell", Verdict::Warning, "8 bytes before a command: \"Welcome\"", "is-interactive")
        .await;
    let flood = "x".repeat(70_000);
    let stand = Stand::healthy().answers("/bin/bash -c exit 0", Ok(&flood));
    stand.fails("quiet-shell", Verdict::Failure, "70000 bytes", "start-up file").await;
    let stand = Stand::healthy().answers("sudo", Err((1, "a password is required")));
    stand.fails("sudo", Verdict::Warning, "a password is required", "opennebula-node-kvm").await;
    stand.put("proc/self/mountinfo", "1 0 0:1 / /var/tmp rw,noexec - tmpfs t rw\n");
    stand.fails("noexec", Verdict::Failure, "noexec", "SCRIPTS_REMOTE_DIR").await;
}

#[tokio::test]
async fn hugepages_are_counted() {
    let stand = Stand::healthy();
    stand.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "8\n");
    stand.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n");
    assert_eq!(stand.of("hugepages").await.evidence, "8 of 2048kB, 3 free");
}
