//! The recorded conversations once more: the same requests, with scripts that say what was recorded, get the same
//! verb, status and id, and the same id of what was made.

use super::corpus::{self, RECORDINGS};
use super::program::{FrontEnd, Program};

/// The script whose output becomes the reply of a verb.
fn main_script(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "DEPLOY" => "deploy",
        "SHUTDOWN" => "shutdown",
        "CANCEL" => "cancel",
        "SAVE" => "save",
        "RESTORE" => "restore",
        "MIGRATE" => "migrate",
        "REBOOT" => "reboot",
        "RESET" => "reset",
        "POLL" => "poll",
        "ATTACHDISK" => "attach_disk",
        "DETACHDISK" => "detach_disk",
        "ATTACHNIC" => "attach_nic",
        "DETACHNIC" => "detach_nic",
        "SNAPSHOTCREATE" => "snapshot_create",
        "SNAPSHOTREVERT" => "snapshot_revert",
        "SNAPSHOTDELETE" => "snapshot_delete",
        "DISKSNAPSHOTCREATE" => "snap_create_live",
        "RESIZEDISK" => "resize_disk",
        "RESIZE" => "resize",
        "BACKUP" => "backup",
        "BACKUPCANCEL" => "backup_cancel",
        "EXEC" => "exec",
        "EXEC_CANCEL" => "exec_cancel",
        _ => return None,
    })
}

/// Replies that can not come out alike, and why.
fn excepted(reply: &[&str]) -> bool {
    // The recorder's driver answered one request without a status: `SAVE  2 -`.
    reply[1].is_empty()
}

/// Verbs whose info the core reads.
const NAMES_SOMETHING: [&str; 6] = ["DEPLOY", "SNAPSHOTCREATE", "UPDATESG", "UPDATENIC", "BACKUP", "POLL"];

struct Request {
    verb: String,
    id: String,
    line: String,
    reply: Option<String>,
}

fn requests(conversation: &str) -> Vec<Request> {
    let lines: Vec<&str> = conversation.lines().collect();
    let mut taken = vec![false; lines.len()];
    let mut all = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(sent) = line.strip_prefix("> ") else { continue };
        let mut words = sent.split_whitespace();
        let verb = words.next().unwrap_or_default().to_owned();
        let id = words.next().unwrap_or_default().to_owned();
        let answers = |line: &str| {
            line.strip_prefix("< ").is_some_and(|reply| {
                let words: Vec<&str> = reply.split(' ').collect();
                words[0] == verb && (words.get(2) == Some(&id.as_str()) || id.is_empty())
            })
        };
        let found = (at..lines.len()).find(|other| !taken[*other] && answers(lines[*other]));
        let reply = found.map(|other| {
            taken[other] = true;
            lines[other][2..].to_owned()
        });
        all.push(Request { verb, id, line: sent.to_owned(), reply });
    }
    all
}

fn prepare(front_end: &FrontEnd, verb: &str, reply: &str) {
    front_end.no_answers();
    let Some(script) = main_script(verb) else { return };
    let words: Vec<&str> = reply.splitn(4, ' ').collect();
    let info = words.get(3).map_or("", |info| info.trim()).trim_start_matches('-');
    let info = info.replace('\'', "'\\''");
    if words[1] == "FAILURE" {
        front_end.answer(script, &format!("cat >/dev/null; printf '%s\\n' '{info}' >&2; exit 1\n"));
    } else if !info.is_empty() {
        front_end.answer(script, &format!("cat >/dev/null; printf '%s\\n' '{info}'\n"));
    } else if script == "snapshot_create" || script == "deploy" {
        panic!("{reply} has no id");
    }
}

fn replay(recording: &str) {
    let front_end = FrontEnd::new();
    let conversation =
        std::fs::read_to_string(corpus::folder(recording).join("conversation.txt")).expect("text");
    let mut documents = corpus::documents(recording).into_iter();
    let mut program: Option<Program> = None;
    let mut compared = 0;
    for request in requests(&conversation) {
        match request.verb.as_str() {
            "INIT" => {
                program = Some(front_end.start("-t 15 -r 0 -p"));
                continue;
            }
            "FINALIZE" => {
                let status = program.take().expect("a driver").finalize();
                assert!(status == Some(0) || status == Some(255), "{recording}: {status:?}");
                continue;
            }
            _ => {}
        }
        let program = program.as_mut().expect("a driver");
        if request.verb == "DRIVER_CANCEL" {
            program.send(&request.line);
            continue;
        }
        let recorded = documents.next().expect("a document");
        let reply = request.reply.expect("every request was answered");
        prepare(&front_end, &request.verb, &reply);
        let blanks = if request.line.contains("  ") { "  " } else { " " };
        let document = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            front_end.document(&recorded.text),
        );
        program.send(&format!("{}{blanks}{} {document}", request.verb, request.id));
        let got = program.next();
        let wanted: Vec<&str> = reply.splitn(4, ' ').collect();
        let got_words: Vec<&str> = got.splitn(4, ' ').collect();
        if excepted(&wanted) {
            continue;
        }
        let name = &recorded.name;
        assert_eq!(got_words[..3], wanted[..3], "{name}: {got}");
        let first = |words: &[&str]| {
            words.get(3).and_then(|info| info.split_whitespace().next()).unwrap_or("-").to_owned()
        };
        if wanted[1] == "SUCCESS" && NAMES_SOMETHING.contains(&request.verb.as_str()) {
            assert_eq!(first(&got_words), first(&wanted), "{name}: {got}");
        }
        compared += 1;
    }
    assert!(documents.next().is_none());
    assert!(compared >= 40, "{recording}: {compared}");
}

#[test]
fn each_recorded_conversation_gets_the_same_replies() {
    std::thread::scope(|scope| {
        for recording in RECORDINGS {
            scope.spawn(move || replay(recording));
        }
    });
}
