//! Results of commands in guests. The `exec` action leaves the number of the guest's process in
//! `/var/run/one/one-VM`; when the guest agent says that it has ended, its result is told once and the file removed.

use std::fs::File;
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use serde_json::Value;

use super::state::vm_id;
use super::text::quoted;
use super::virsh::Virsh;
use crate::node::root::Root;

const FOLDER: &str = "/var/run/one";

/// Ended commands, and the files to remove once they were told.
#[derive(Debug, Default)]
pub struct Results {
    /// EXEC_VM text; empty when nothing ended.
    pub text: String,
    /// One file for each command.
    files: Vec<PathBuf>,
    /// Held until it is dropped: the action that writes the files takes the same lock.
    _lock: Option<File>,
}

impl Results {
    /// They were told: their files go.
    pub fn told(self) {
        for file in &self.files {
            // One that can't be removed is told again; the receiver stores the same result.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Commands that are under way: VM and process in the guest.
#[must_use]
pub fn waiting(root: &Root) -> Vec<(i64, i64, PathBuf)> {
    let names = root.names(FOLDER);
    let all = names.iter().filter_map(|name| {
        let path = format!("{FOLDER}/{name}");
        Some((vm_id(name)?, root.number(&path)?, root.path(&path)))
    });
    all.collect()
}

/// Asks for all commands that are under way. Nothing is started when there are none. A VM whose agent does not answer is
/// asked again next time and holds up no other.
pub async fn collect(root: &Root, virsh: &Virsh, limit: std::time::Duration) -> Results {
    let mut results = Results::default();
    if waiting(root).is_empty() {
        return results;
    }
    let Ok(lock) = File::options().create(true).append(true).open(root.path(format!("{FOLDER}/.exec-lock")))
    else {
        return results;
    };
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return results;
    }
    results._lock = Some(lock);
    let mut asking = tokio::task::JoinSet::new();
    for (vm, pid, file) in waiting(root) {
        let virsh = virsh.clone();
        asking.spawn(async move {
            let command =
                serde_json::json!({"execute": "guest-exec-status", "arguments": {"pid": pid}}).to_string();
            let answer = virsh.guest(&format!("one-{vm}"), &command, limit).await.ok()?;
            Some((block(vm, pid, &answer)?, file))
        });
    }
    while let Some(ended) = asking.join_next().await {
        if let Ok(Some((block, file))) = ended {
            results.text.push_str(&block);
            results.files.push(file);
        }
    }
    results
}

/// The block of an ended command; `None` while it runs.
fn block(vm: i64, pid: i64, answer: &str) -> Option<String> {
    let told: Value = serde_json::from_str(answer.trim()).ok()?;
    let told = told.get("return")?;
    if told.get("exited").and_then(Value::as_bool) != Some(true) {
        return None;
    }
    let text = |name: &str| told.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let number = |name: &str| told.get(name).and_then(Value::as_i64);
    let status = number("exitcode").or_else(|| number("signal").map(|signal| 128 + signal)).unwrap_or(-1);
    Some(format!(
        "VM = [ ID=\"{vm}\", PID=\"{pid}\", STATUS=\"DONE\", RETURN_CODE=\"{status}\", STDOUT={}, STDERR={} ]\n",
        quoted(&text("out-data")),
        quoted(&text("err-data"))
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::node::tools::{Ask, fake::Fake};

    #[tokio::test]
    async fn an_ended_command_is_told_and_its_file_removed_after_that() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("var/run/one");
        std::fs::create_dir_all(&folder).expect("made");
        for (name, pid) in [("one-5", "345\n"), ("one-6", "7"), ("one-8", "9"), ("other", "1")] {
            std::fs::write(folder.join(name), pid).expect("written");
        }
        let virsh = Virsh::new(
            Arc::new(Fake(|ask: &Ask| match ask.args[5].as_str() {
                "one-5" => {
                    Ok(r#"{"return":{"exited":true,"exitcode":3,"out-data":"aGk=","err-data":"eA=="}}"#
                        .into())
                }
                "one-6" => Err((1, "agent is dead".into())),
                _ => Ok(r#"{"return":{"exited":false}}"#.into()),
            })),
            "u",
            Duration::from_secs(1),
        );
        let root = Root::at(dir.path());
        let results = collect(&root, &virsh, Duration::from_secs(1)).await;
        assert_eq!(
            results.text,
            "VM = [ ID=\"5\", PID=\"345\", STATUS=\"DONE\", RETURN_CODE=\"3\", STDOUT=\"aGk=\", STDERR=\"eA==\" ]\n"
        );
        assert!(folder.join("one-5").exists());
        let other = File::open(folder.join(".exec-lock")).expect("there");
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        results.told();
        assert!(!folder.join("one-5").exists() && folder.join("one-6").exists());
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok());
    }

    #[tokio::test]
    async fn nothing_is_started_when_nothing_is_under_way() {
        let virsh = Virsh::new(Arc::new(Fake(|_: &Ask| panic!("asked"))), "u", Duration::from_secs(1));
        assert!(collect(&Root::at("/nonexistent"), &virsh, Duration::from_secs(1)).await.text.is_empty());
    }
}
