//! The readers of oned imitated: whatever a script says, they find the verb, status and id that we meant.

use kvmad::mad::form::{Form, PlainForm, ReplyTo};
use kvmad::mad::{Answer, LineForm, Severity, clean};
use proptest::prelude::*;

const PLAIN: PlainForm = PlainForm { info_limit: 4096, log_limit: 1000 };

/// What a reader finds in one line: type, status, id, info.
type Found = (String, String, i32, String);

/// A stream as C++ reads it: words and numbers separated by white space.
struct Stream<'a>(&'a [u8]);

impl Stream<'_> {
    fn skip(&mut self) {
        let blanks = self.0.iter().take_while(|byte| matches!(byte, b' ' | 9..=13)).count();
        self.0 = &self.0[blanks..];
    }

    fn word(&mut self) -> Option<String> {
        self.skip();
        let end = self.0.iter().take_while(|byte| !matches!(byte, b' ' | 9..=13)).count();
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then(|| String::from_utf8_lossy(word).into_owned())
    }

    fn number(&mut self) -> Option<i32> {
        self.skip();
        let sign = usize::from(self.0.first() == Some(&b'-'));
        let end = sign + self.0[sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&self.0[..end]).ok()?.parse().ok()?;
        self.0 = &self.0[end..];
        Some(number)
    }
}

/// oned up to 5.12: type and status as words, then a number, the rest is the info.
fn old_reader(line: &[u8]) -> Option<Found> {
    let mut stream = Stream(line);
    let (kind, status) = (stream.word()?, stream.word()?);
    let id = stream.number()?;
    stream.skip();
    Some((kind, status, id, String::from_utf8_lossy(stream.0).into_owned()))
}

/// oned from 6.0: what is not there counts as 0 or -1, and nothing is refused.
fn new_reader(line: &[u8]) -> Found {
    let mut stream = Stream(line);
    let kind = stream.word().unwrap_or_default();
    let status = stream.word();
    let id = if status.is_none() { -1 } else { stream.number().unwrap_or(0) };
    stream.skip();
    (kind, status.unwrap_or_default(), id, String::from_utf8_lossy(stream.0).into_owned())
}

fn check(bytes: &[u8], kind: &str, status: &str, id: i32) -> Result<(), TestCaseError> {
    // A NUL byte hides the end of a line from the new reader.
    prop_assert!(!bytes.contains(&0));
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    prop_assert_eq!(lines.len(), 1);
    let line = bytes.strip_suffix(b"\n").expect("ends in a newline");
    let new = new_reader(line);
    prop_assert_eq!((new.0.as_str(), new.1.as_str(), new.2), (kind, status, id));
    let old = old_reader(line).expect("not dropped");
    prop_assert_eq!((old.0.as_str(), old.1.as_str(), old.2), (kind, status, id));
    Ok(())
}

proptest! {
    #[test]
    fn no_info_forges_or_hides_a_reply(info in any::<String>(), success in any::<bool>(), id in 0i32.., prefix in any::<bool>()) {
        let prefix = prefix.then(|| "101".to_owned());
        let to = ReplyTo { verb: "SHUTDOWN".into(), id: id.to_string(), prefix, form: LineForm::New };
        let answer = if success { Answer::Success(info) } else { Answer::Failure(info) };
        let status = if success { "SUCCESS" } else { "FAILURE" };
        check(&clean::message(&PLAIN.reply(&to, &answer)), "SHUTDOWN", status, id)?;
    }

    #[test]
    fn no_text_forges_a_log_line(text in any::<String>(), id in 0i64..i64::from(i32::MAX)) {
        if let Some(line) = PLAIN.log(LineForm::New, Severity::Error, Some(id), &text) {
            check(&clean::message(&line), "LOG", "E", i32::try_from(id).expect("in range"))?;
        }
    }
}

#[test]
fn a_dash_as_id_is_vm_0_to_new_readers_and_no_vm_to_old_ones() {
    // Why the form of a LOG line without a subject depends on who reads it.
    assert_eq!(new_reader(b"LOG I - hello").2, 0);
    assert_eq!(old_reader(b"LOG I - hello"), None);
    let new = PLAIN.log(LineForm::New, Severity::Info, None, "hello").expect("a line");
    assert_eq!(new_reader(new.as_bytes()).2, -1);
    let old = PLAIN.log(LineForm::Old, Severity::Info, None, "hello").expect("a line");
    assert_eq!(old_reader(old.as_bytes()), None);
}
