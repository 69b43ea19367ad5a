//! How messages to `oned` are written: `TYPE STATUS ID INFO`.

use super::actions::{Answer, LineForm, Severity};
use super::clean;

/// Longest line that oned from 6.0 reads as the answer to INIT; what is behind would become a line of its own.
const INIT_LIMIT: usize = 31;

/// What a reply answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyTo {
    /// The verb, in upper case.
    pub verb: String,
    /// The id as it was written.
    pub id: String,
    /// Goes in front of the info, also of a failure.
    pub prefix: Option<String>,
    /// How the request was written.
    pub form: LineForm,
}

/// Writes messages. The VMM driver has [`PlainForm`]; the IM driver has one of its own, because onemonitord wants
/// a time and a packed text. Newlines are put behind, and control bytes are replaced, by the writer of stdout.
pub trait Form: Send + Sync {
    /// The reply to a request.
    fn reply(&self, to: &ReplyTo, answer: &Answer) -> String;

    /// A LOG line; without a subject it is for oned's own log. `None` when there is nothing to say.
    fn log(&self, form: LineForm, severity: Severity, subject: Option<i64>, text: &str) -> Option<String>;
}

/// `VERB STATUS ID INFO` in plain text, as the VMM driver speaks in all versions of OpenNebula.
#[derive(Debug, Clone, Copy)]
pub struct PlainForm {
    /// Longest info, in bytes.
    pub info_limit: usize,
    /// Longest text of a LOG line, in bytes.
    pub log_limit: usize,
}

impl Form for PlainForm {
    fn reply(&self, to: &ReplyTo, answer: &Answer) -> String {
        let (status, info) = match answer {
            Answer::Success(info) => ("SUCCESS", clean::line(info, self.info_limit)),
            Answer::Failure(reason) => ("FAILURE", reason_for(&clean::line(reason, self.info_limit))),
        };
        let prefix = to.prefix.as_deref().map(|prefix| format!("{prefix} ")).unwrap_or_default();
        format!("{} {status} {} {prefix}{info}", to.verb, to.id)
    }

    fn log(&self, form: LineForm, severity: Severity, subject: Option<i64>, text: &str) -> Option<String> {
        let text = clean::line(text, self.log_limit);
        if text.is_empty() {
            return None;
        }
        let id = match (subject, form) {
            (Some(subject), _) => subject.to_string(),
            // oned up to 5.12 takes a negative number for a VM that is not there; from 6.0 on it takes `-` for VM 0.
            (None, LineForm::Old) => "-".to_owned(),
            (None, LineForm::New | LineForm::Stamped) => "-1".to_owned(),
        };
        Some(format!("LOG {} {id} {text}", letter(severity)))
    }
}

/// `oned` shows no reason that begins with `-`, which means "none".
fn reason_for(reason: &str) -> String {
    match reason {
        "" | "-" => "-".to_owned(),
        reason if reason.starts_with('-') => format!("error: {reason}"),
        reason => reason.to_owned(),
    }
}

/// The letter of a severity: D, I, W or E.
#[must_use]
pub fn letter(severity: Severity) -> char {
    match severity {
        Severity::Debug => 'D',
        Severity::Info => 'I',
        Severity::Warning => 'W',
        Severity::Error => 'E',
    }
}

/// The answer to INIT. A reason that keeps the driver from working is cut so that the line has at most 31 bytes.
#[must_use]
pub fn init(fault: Option<&str>) -> String {
    const FAILURE: &str = "INIT FAILURE - ";
    match fault {
        None => "INIT SUCCESS - -".to_owned(),
        Some(reason) => {
            let ascii: String = reason.chars().filter(char::is_ascii).collect();
            let mut reason = clean::line(&ascii, usize::MAX);
            reason.truncate(INIT_LIMIT - 1 - FAILURE.len());
            format!("{FAILURE}{}", reason.trim_end())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: PlainForm = PlainForm { info_limit: 4096, log_limit: 100 };

    fn to(verb: &str, prefix: Option<&str>) -> ReplyTo {
        let prefix = prefix.map(str::to_owned);
        ReplyTo { verb: verb.to_owned(), id: "12".to_owned(), prefix, form: LineForm::New }
    }

    #[test]
    fn replies_have_four_fields() {
        let success = |info: &str| PLAIN.reply(&to("DEPLOY", None), &Answer::Success(info.to_owned()));
        let failure = |info: &str| PLAIN.reply(&to("DEPLOY", None), &Answer::Failure(info.to_owned()));
        assert_eq!(success("one-12"), "DEPLOY SUCCESS 12 one-12");
        assert_eq!(success(""), "DEPLOY SUCCESS 12 ");
        assert_eq!(failure("a\nb"), "DEPLOY FAILURE 12 a; b");
        assert_eq!(failure(""), "DEPLOY FAILURE 12 -");
    }

    #[test]
    fn a_reason_that_begins_with_a_dash_is_still_shown() {
        let answer = Answer::Failure("-bash: virsh: command not found".to_owned());
        assert_eq!(
            PLAIN.reply(&to("SAVE", None), &answer),
            "SAVE FAILURE 12 error: -bash: virsh: command not found"
        );
    }

    #[test]
    fn the_prefix_stands_before_every_info() {
        let reply = |answer| PLAIN.reply(&to("UPDATESG", Some("101")), &answer);
        assert_eq!(reply(Answer::Success("ok".to_owned())), "UPDATESG SUCCESS 12 101 ok");
        assert_eq!(reply(Answer::Failure(String::new())), "UPDATESG FAILURE 12 101 -");
    }

    #[test]
    fn log_lines_without_a_subject_never_reach_vm_0() {
        let log = |form, subject| PLAIN.log(form, Severity::Warning, subject, "x").expect("a line");
        assert_eq!(log(LineForm::Old, None), "LOG W - x");
        assert_eq!(log(LineForm::New, None), "LOG W -1 x");
        assert_eq!(log(LineForm::New, Some(0)), "LOG W 0 x");
        assert_eq!(PLAIN.log(LineForm::New, Severity::Info, Some(1), " \n"), None);
    }

    #[test]
    fn the_answer_to_init_fits_into_one_read_of_31_bytes() {
        assert_eq!(init(None).len() + 1, 17);
        let failure = init(Some("no hypervisor is named in ARGUMENTS"));
        assert_eq!(failure, "INIT FAILURE - no hypervisor i");
        assert!(failure.len() < INIT_LIMIT);
    }
}
