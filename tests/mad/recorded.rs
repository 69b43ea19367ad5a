//! Recorded conversations of real cores (7.4, 5.12, 4.14) with stock drivers: each line is understood, and what we
//! would write is what was written.

use base64::Engine;
use kvmad::mad::form::{Form, PlainForm, ReplyTo, init};
use kvmad::mad::line::{Line, parse};
use kvmad::mad::{Answer, LineForm, Request};

const PLAIN: PlainForm = PlainForm { info_limit: 1 << 20, log_limit: 1 << 20 };

fn conversation(path: &str) -> String {
    let path = format!("{}/tests/corpus/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn requests(path: &str) -> Vec<Request> {
    conversation(path)
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .filter_map(|line| match parse(line.as_bytes()) {
            Line::Request(request) => Some(request),
            Line::Init | Line::Finalize | Line::Cancel(..) => None,
            other => panic!("{line:.100}: {other:?}"),
        })
        .collect()
}

#[test]
fn every_recorded_request_to_the_vmm_driver_is_understood() {
    for (path, form, count) in [
        ("vmm-7.4/conversation.txt", LineForm::New, 61),
        ("vmm-5.12/conversation.txt", LineForm::Old, 45),
        ("vmm-4.14/conversation.txt", LineForm::Old, 41),
    ] {
        let requests = requests(path);
        assert_eq!(requests.len(), count, "{path}");
        for request in requests {
            assert_eq!(request.form, form, "{path}");
            let document =
                base64::engine::general_purpose::STANDARD.decode(&request.payload).expect("base64");
            assert!(document.starts_with(b"<VMM_DRIVER_ACTION_DATA>"), "{path}");
            let id = format!("<ID>{}</ID>", request.number);
            assert!(String::from_utf8_lossy(&document).contains(&id), "{path}: {} {id}", request.verb);
        }
    }
}

#[test]
fn every_recorded_request_to_the_im_driver_is_understood() {
    for (path, form) in [
        ("monitord-7.4/driver-conversation.txt", LineForm::Stamped),
        ("im-4.14/driver-conversation.txt", LineForm::Old),
    ] {
        let requests = requests(path);
        assert!(requests.len() > 4, "{path}");
        for request in requests {
            assert_eq!(request.form, form, "{path}");
            let words = request.payload.split(' ').count();
            let expected = match request.verb.as_str() {
                "START_MONITOR" | "STOP_MONITOR" => 2,
                "MONITOR" => 3,
                "STOPMONITOR" => 1,
                verb => panic!("{verb}"),
            };
            assert_eq!(words, expected, "{path}: {}", request.verb);
        }
    }
}

#[test]
fn recorded_replies_are_written_as_they_were() {
    for path in ["vmm-7.4/conversation.txt", "vmm-5.12/conversation.txt", "vmm-4.14/conversation.txt"] {
        let mut count = 0;
        for line in conversation(path).lines().filter_map(|line| line.strip_prefix("< ")) {
            let fields: Vec<&str> = line.splitn(4, ' ').collect();
            let [verb, status, id, info] = fields[..] else { continue };
            if verb == "INIT" {
                assert_eq!(line, init(None));
                continue;
            }
            let to = ReplyTo { verb: verb.to_owned(), id: id.to_owned(), prefix: None, form: LineForm::New };
            let answer = match status {
                "SUCCESS" => Answer::Success(info.to_owned()),
                "FAILURE" => Answer::Failure(info.to_owned()),
                _ => continue,
            };
            // Blanks at the end of an info are not kept.
            assert_eq!(PLAIN.reply(&to, &answer).trim_end(), line.trim_end(), "{path}");
            count += 1;
        }
        assert!(count > 30, "{path}: {count}");
    }
}
