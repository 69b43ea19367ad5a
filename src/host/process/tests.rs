use std::os::unix::fs::PermissionsExt;

use super::*;

fn script(mode: u32, text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

async fn status(path: &str) -> Result<End, StartError> {
    let (process, _pipes) = Process::start(&Start::new(path)).await?;
    process.ended().await.unwrap();
    Ok(process.reap().await.unwrap())
}

#[tokio::test]
async fn a_missing_program_and_one_that_may_not_be_executed_are_told_apart() {
    assert!(matches!(status("/nonexistent/x").await, Err(StartError::NotFound { .. })));
    assert!(matches!(status("no-such-program-anywhere").await, Err(StartError::NotFound { .. })));
    let (_dir, path) = script(0o644, "#!/bin/sh\nexit 0\n");
    let error = status(&path).await.unwrap_err();
    assert!(matches!(error, StartError::NotExecutable { .. }));
    assert!(error.to_string().contains(&path), "{error}");
}

#[tokio::test]
async fn a_script_without_interpreter_line_is_run_by_the_shell() {
    let (_dir, path) = script(0o755, "exit 7\n");
    assert_eq!(status(&path).await.unwrap(), End::Exited(7));
}

#[tokio::test]
async fn a_missing_working_directory_is_not_a_missing_program() {
    let error = Process::start(&Start::new("true").dir("/nonexistent")).await.unwrap_err();
    assert!(matches!(error, StartError::System { .. }), "{error}");
}

#[tokio::test]
async fn the_environment_is_ours_with_what_is_added_and_taken() {
    let start =
        Start::new("sh").arg("-c").arg("exit $((A + ${PATH:+100}0 / 100))").env("A", "3").env_remove("B");
    let (process, _pipes) = Process::start(&start).await.unwrap();
    process.ended().await.unwrap();
    assert_eq!(process.reap().await.unwrap(), End::Exited(13));
}

#[tokio::test]
async fn a_program_leads_its_own_group_and_has_no_other_descriptor() {
    let (_process, mut pipes) = Process::start(
        &Start::new("sh").arg("-c").arg("cut -d' ' -f5 /proc/$$/stat; echo $$; ls /proc/$$/fd"),
    )
    .await
    .unwrap();
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut pipes.stdout, &mut text).await.unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[0], words[1]);
    for fd in &words[2..] {
        // Above 2 only what whoever started the tests leaked into us: settle() closes such.
        assert!(["0", "1", "2"].contains(fd) || inheritable(fd), "descriptor {fd} of ours");
    }
}

fn inheritable(fd: &str) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("0");
    u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000 == 0
}

#[test]
fn leaked_descriptors_are_found() {
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(leaked().contains(&std::os::fd::AsRawFd::as_raw_fd(&file)));
}

#[tokio::test]
async fn a_detached_program_lives_on() {
    let start = Start::new("setsid").arg("sh").arg("-c").arg("echo $$; exec sleep 30").makes_own_session();
    let (process, mut pipes) = Process::start(&start).await.unwrap();
    let mut buffer = [0; 32];
    let count = tokio::io::AsyncReadExt::read(&mut pipes.stdout, &mut buffer).await.unwrap();
    let pid: i32 = std::str::from_utf8(&buffer[..count]).unwrap().trim().parse().unwrap();
    assert_eq!(pid, process.id(), "setsid had to fork");
    process.detach();
    let pid = Pid::from_raw(pid).unwrap();
    rustix::process::test_kill_process(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}
