//! Takes a line of `oned` or `onemonitord` apart.
//!
//! The forms: `VERB ID PAYLOAD` (oned up to 5.12), `VERB  ID PAYLOAD` with an empty status word (oned from 6.0),
//! `VERB - ID TIME PAYLOAD` (onemonitord); `INIT` and `FINALIZE` stand alone; `DRIVER_CANCEL ID`. Beyond these, blanks
//! around the line, several of them between words, tabs and a carriage return at the end are tolerated.

use super::actions::{LineForm, Request};
use super::clean;

/// What a line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Nothing stands on it.
    Empty,
    /// Say that the driver is ready.
    Init,
    /// Take no more requests, finish, end.
    Finalize,
    /// End the requests of a subject and do not answer them.
    Cancel(i64, LineForm),
    /// A request.
    Request(Request),
    /// Nothing that can be answered: no verb or no id can be read from it. The text is for people.
    Unreadable(String),
}

/// Longest word that is taken for a verb.
const LONGEST_VERB: usize = 64;

/// Takes a line apart; its newline may be there or not.
#[must_use]
pub fn parse(line: &[u8]) -> Line {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_matches(blank);
    if text.is_empty() {
        return Line::Empty;
    }
    let (verb, rest) = next_word(text);
    if !is_verb(verb) {
        return Line::Unreadable(format!("it begins with no verb: {}", excerpt(text)));
    }
    let verb = verb.to_ascii_uppercase();
    match verb.as_str() {
        "INIT" => return Line::Init,
        "FINALIZE" => return Line::Finalize,
        _ => {}
    }
    let (form, rest) = form_of(rest);
    let (id, rest) = next_word(rest);
    let Ok(number) = id.parse::<i64>() else {
        return Line::Unreadable(format!("{verb} has no decimal id: {}", excerpt(text)));
    };
    if verb == "DRIVER_CANCEL" {
        return Line::Cancel(number, form);
    }
    Line::Request(Request { verb, id: id.to_owned(), number, payload: single_blanks(rest), form })
}

/// Reads the form from what stands behind the verb, and gives what stands behind the status word.
fn form_of(rest: &str) -> (LineForm, &str) {
    let (word, behind) = next_word(rest);
    if word == "-" {
        return (LineForm::Stamped, behind);
    }
    let form = if rest.starts_with("  ") { LineForm::New } else { LineForm::Old };
    (form, rest)
}

/// The first word, and all behind it, its blanks included.
fn next_word(text: &str) -> (&str, &str) {
    let text = text.trim_start_matches(blank);
    text.split_at(text.find(blank).unwrap_or(text.len()))
}

fn blank(c: char) -> bool {
    c.is_ascii_whitespace()
}

fn is_verb(word: &str) -> bool {
    word.len() <= LONGEST_VERB
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A payload can be tens of megabytes, mostly of one word: it is copied once.
fn single_blanks(text: &str) -> String {
    let mut words = text.split_ascii_whitespace();
    let mut single = String::with_capacity(text.len());
    single.push_str(words.next().unwrap_or(""));
    for word in words {
        single.push(' ');
        single.push_str(word);
    }
    single
}

fn excerpt(text: &str) -> String {
    format!("{:?}", clean::line(text, 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        match parse(line.as_bytes()) {
            Line::Request(request) => request,
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn the_form_of_oned_up_to_5_12() {
        let request = request("DEPLOY 42 PFZN\n");
        assert_eq!((request.verb.as_str(), request.id.as_str(), request.number), ("DEPLOY", "42", 42));
        assert_eq!((request.payload.as_str(), request.form), ("PFZN", LineForm::Old));
    }

    #[test]
    fn the_form_of_oned_from_6_0() {
        let request = request("DEPLOY  42 PFZN \n");
        assert_eq!(
            (request.id.as_str(), request.payload.as_str(), request.form),
            ("42", "PFZN", LineForm::New)
        );
    }

    #[test]
    fn the_form_of_onemonitord() {
        let request = request("START_MONITOR - 3 0 eJx1\n");
        assert_eq!(
            (request.number, request.payload.as_str(), request.form),
            (3, "0 eJx1", LineForm::Stamped)
        );
    }

    #[test]
    fn the_form_of_monitoring_before_5_12() {
        let request = request("MONITOR 3 node3 /var/lib/one/datastores 1\n");
        assert_eq!(request.payload, "node3 /var/lib/one/datastores 1");
        assert_eq!(
            super::parse(b"STOPMONITOR 3 node3 \n"),
            Line::Request(Request {
                verb: "STOPMONITOR".into(),
                id: "3".into(),
                number: 3,
                payload: "node3".into(),
                form: LineForm::Old,
            })
        );
    }

    #[test]
    fn cancels_of_every_version() {
        assert_eq!(parse(b"DRIVER_CANCEL 7\n"), Line::Cancel(7, LineForm::Old));
        assert_eq!(parse(b"DRIVER_CANCEL  7 \n"), Line::Cancel(7, LineForm::New));
        assert_eq!(parse(b"driver_cancel - 7 0\n"), Line::Cancel(7, LineForm::Stamped));
        assert!(matches!(parse(b"DRIVER_CANCEL\n"), Line::Unreadable(_)));
    }

    #[test]
    fn blanks_carriage_returns_and_missing_newlines_are_tolerated() {
        for line in ["DEPLOY 1 x", "  DEPLOY 1 x\r\n", "\tDEPLOY\t1\tx\t\n", "deploy 1   x  \r\n"] {
            let request = request(line);
            assert_eq!(
                (request.verb.as_str(), request.number, request.payload.as_str()),
                ("DEPLOY", 1, "x"),
                "{line:?}"
            );
        }
        for line in ["", "\n", "\r\n", "   \t \n"] {
            assert_eq!(parse(line.as_bytes()), Line::Empty, "{line:?}");
        }
        for line in ["INIT", "INIT\r\n", " init \n"] {
            assert_eq!(parse(line.as_bytes()), Line::Init, "{line:?}");
        }
        assert_eq!(parse(b"FINALIZE\n"), Line::Finalize);
    }

    #[test]
    fn what_can_not_be_answered_is_told_apart() {
        for line in
            ["DEPLOY", "DEPLOY x y", "DEPLOY 12one y", "12 DEPLOY", "\u{1}\u{2}", "{\"a\": 1}", "DEPLOY  - 3"]
        {
            let parsed = parse(line.as_bytes());
            let readable = matches!(&parsed, Line::Request(request) if request.form == LineForm::Stamped);
            assert!(readable || matches!(parsed, Line::Unreadable(_)), "{line:?}: {parsed:?}");
        }
        assert!(matches!(parse(&[0xff, 0xfe, b' ', b'1']), Line::Unreadable(_)));
    }

    #[test]
    fn a_request_without_payload_is_a_request() {
        assert_eq!(request("REBOOT  5 \n").payload, "");
        assert_eq!(request("REBOOT 5").payload, "");
    }
}
