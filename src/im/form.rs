//! How the IM driver's answers are written, for each era.

use crate::mad::actions::{Answer, LineForm, Severity};
use crate::mad::clean;
use crate::mad::form::{Form, ReplyTo, letter};
use crate::node::monitor::agent::clock;
use crate::node::monitor::message::pack;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// In front of the text of a LOG line that is to become the failure of a host. Scripts can't write it: control
/// characters are taken out of what they say.
pub const HOST_FAILURE: char = '\u{1}';

/// Writes answers of the IM driver.
#[derive(Debug, Clone, Copy)]
pub struct ImForm {
    /// MONITOR is answered in plain text on one line (3.8) instead of base64 (4.0 and later).
    pub plain: bool,
    /// Longest text of a LOG line, in bytes.
    pub log_limit: usize,
}

impl Form for ImForm {
    fn reply(&self, to: &ReplyTo, answer: &Answer) -> String {
        let (status, info) = match answer {
            Answer::Success(info) => ("SUCCESS", info.as_str()),
            Answer::Failure(reason) => ("FAILURE", reason.as_str()),
        };
        let ReplyTo { verb, id, form, .. } = to;
        match form {
            LineForm::Stamped => format!("{verb} {status} {id} {} {}", clock(), pack(info.as_bytes())),
            _ if self.plain => {
                // 3.8 makes a newline of every comma.
                let words: Vec<&str> = info.split_whitespace().collect();
                let line = words.join(" ");
                format!("{verb} {status} {id} {}", if line.is_empty() { "-" } else { &line })
            }
            _ => format!("{verb} {status} {id} {}", STANDARD.encode(info)),
        }
    }

    fn log(&self, form: LineForm, severity: Severity, subject: Option<i64>, text: &str) -> Option<String> {
        let failure = text.strip_prefix(HOST_FAILURE);
        let text = clean::line(failure.unwrap_or(text), self.log_limit);
        if text.is_empty() {
            return None;
        }
        match (form, subject, failure) {
            // onemonitord tells oned nothing of why a START failed, but it hands on the failure of a SYSTEM_HOST. The
            // time 0 is always accepted.
            (LineForm::Stamped, Some(host), Some(_)) => {
                Some(format!("SYSTEM_HOST FAILURE {host} 0 {}", pack(text.as_bytes())))
            }
            (LineForm::Stamped, subject, _) => {
                let id = subject.unwrap_or(-1);
                Some(format!("LOG {} {id} {} {}", letter(severity), clock(), pack(text.as_bytes())))
            }
            (_, subject, _) => {
                let id = subject.map_or("-".to_owned(), |id| id.to_string());
                Some(format!("LOG {} {id} {text}", letter(severity)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::monitor::message::unpack;

    fn to(verb: &str, form: LineForm) -> ReplyTo {
        ReplyTo { verb: verb.into(), id: "3".into(), prefix: None, form }
    }

    fn unpacked(line: &str) -> String {
        String::from_utf8(unpack(line.rsplit(' ').next().expect("a word")).expect("packed")).expect("text")
    }

    #[test]
    fn from_5_12_replies_and_logs_carry_a_time_and_are_packed() {
        let form = ImForm { plain: false, log_limit: 100 };
        let line = form.reply(&to("START_MONITOR", LineForm::Stamped), &Answer::Success("<X>\n</X>".into()));
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!((words.len(), words[..3].join(" ")), (5, "START_MONITOR SUCCESS 3".to_owned()));
        assert!(words[3].parse::<u64>().expect("a time") > 1_700_000_000);
        assert_eq!(unpacked(&line), "<X>\n</X>");
        let log = form.log(LineForm::Stamped, Severity::Error, Some(3), "broken").expect("a line");
        assert!(log.starts_with("LOG E 3 "), "{log}");
        assert_eq!(unpacked(&log), "broken");
    }

    #[test]
    fn the_reason_of_a_failed_start_reaches_oned_as_a_failure_of_the_host() {
        let form = ImForm { plain: false, log_limit: 100 };
        let text = format!("{HOST_FAILURE}no route");
        let line = form.log(LineForm::Stamped, Severity::Error, Some(3), &text).expect("a line");
        assert!(line.starts_with("SYSTEM_HOST FAILURE 3 0 "), "{line}");
        assert_eq!(unpacked(&line), "no route");
        assert_eq!(
            form.log(LineForm::Old, Severity::Error, Some(3), &text).as_deref(),
            Some("LOG E 3 no route")
        );
    }

    #[test]
    fn up_to_5_10_it_is_base64_and_in_3_8_plain() {
        let old = to("MONITOR", LineForm::Old);
        let answer = Answer::Success("ARCH=x86_64\nHYPERVISOR=kvm\nTOTALCPU=800\n".into());
        let base64 = ImForm { plain: false, log_limit: 100 };
        // From the recorded form: base64 of exactly the text.
        assert_eq!(
            base64.reply(&old, &answer),
            "MONITOR SUCCESS 3 QVJDSD14ODZfNjQKSFlQRVJWSVNPUj1rdm0KVE9UQUxDUFU9ODAwCg=="
        );
        let plain = ImForm { plain: true, log_limit: 100 };
        assert_eq!(plain.reply(&old, &answer), "MONITOR SUCCESS 3 ARCH=x86_64 HYPERVISOR=kvm TOTALCPU=800");
        assert_eq!(plain.reply(&old, &Answer::Failure(String::new())), "MONITOR FAILURE 3 -");
    }
}
