//! `kvmad decode`: lines of a driver log made readable. Words in base64, compressed or not, are shown as what
//! they hold, XML with one element a line.

use std::io::{self, BufRead, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use flate2::read::ZlibDecoder;

use super::pretty;
use crate::mad::reader::{self, Input};
use crate::template::xml::Document;

/// Most that one compressed word is unfolded to.
const UNFOLDED: u64 = 64 << 20;
/// Shorter words are taken as words, save for the info of a reply.
const SHORTEST: usize = 16;
/// The same for the info of a reply; a padded one may be still shorter.
const SHORTEST_INFO: usize = 8;
/// Longest line that is kept in memory.
const LINE: usize = 64 << 20;
/// Characters that are shown of a longer one.
const HEAD: usize = 200;
/// Columns by which what a word holds is indented.
const INDENT: usize = 4;

/// Arguments of `kvmad decode`.
#[derive(Debug, Args)]
pub struct Arguments {}

/// Reads lines from `input` and prints them on `out`.
pub fn run(_: &Arguments, input: &mut dyn BufRead, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    decode(input, LINE, out, err)
}

fn decode(input: &mut dyn BufRead, longest: usize, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let (mut written, mut unreadable) = (Ok(()), None);
    reader::drain(input, longest, |input| {
        written = match input {
            Input::Line(line) => show(&String::from_utf8_lossy(&line), out),
            Input::TooLong(head, length) => too_long(&String::from_utf8_lossy(&head), length, out),
            Input::End(fault) => {
                unreadable = fault;
                Ok(())
            }
        };
        written.is_ok()
    });
    if let Err(error) = written.and_then(|()| out.flush()) {
        return super::unwritten(&error, err);
    }
    match unreadable {
        None => super::FINE,
        Some(error) => {
            // Nobody is left to tell when stderr is gone too.
            let _ = writeln!(err, "stdin can't be read: {error}");
            super::USAGE
        }
    }
}

/// The line with a remark in place of each word that holds something, and below it what they hold.
fn show(line: &str, out: &mut dyn Write) -> io::Result<()> {
    let line = line.trim_end_matches(['\n', '\r']);
    let mut contents = Vec::new();
    let mut shown = Vec::new();
    // The last two words, the younger one last.
    let mut before = ("", "");
    for word in line.split(' ') {
        match held(word, is_reply(before)) {
            None => shown.push(super::plain(word)),
            Some(found) => {
                shown.push(format!("({}, {} bytes)", found.kind, found.bytes));
                contents.push(found.text);
            }
        }
        before = (before.1, word);
    }
    writeln!(out, "{}", shown.join(" "))?;
    contents.iter().try_for_each(|text| out.write_all(text.as_bytes()))
}

/// The beginning of a line that is too long to be kept, and how long it was.
fn too_long(head: &str, length: usize, out: &mut dyn Write) -> io::Result<()> {
    let head: String = head.chars().take(HEAD).collect();
    writeln!(out, "{} ... (a line of {length} bytes, too long to be decoded)", super::plain(&head))
}

/// Whether what follows these two words is what a driver answered: `DEPLOY SUCCESS 42 INFO`.
fn is_reply((status, id): (&str, &str)) -> bool {
    matches!(status, "SUCCESS" | "FAILURE")
        && (id == "-" || (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())))
}

/// What a word holds.
struct Held {
    kind: &'static str,
    bytes: usize,
    text: String,
}

/// What `word` holds, if it is base64 of something readable; `info`: it is the info of a reply, and may be short.
fn held(word: &str, info: bool) -> Option<Held> {
    let body = word.trim_end_matches('=');
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let short = word.len() < SHORTEST;
    let may_be_short = info && (word.len() >= SHORTEST_INFO || body.len() < word.len());
    if (short && !may_be_short) || !word.len().is_multiple_of(4) || !body.bytes().all(inside) {
        return None;
    }
    let decoded = STANDARD.decode(word).ok()?;
    let unfolded = unfold(&decoded);
    let packed = unfolded.is_some();
    let text = String::from_utf8(unfolded.unwrap_or(decoded)).ok()?;
    if text.is_empty() || !text.chars().all(|c| readable(c, short)) {
        return None;
    }
    let bytes = text.len();
    let markup = text.trim_start().starts_with('<');
    if let Some(Ok(document)) = markup.then(|| Document::parse(text.as_str())) {
        let kind = if packed { "compressed XML" } else { "XML" };
        return Some(Held { kind, bytes, text: super::plain(&pretty::xml(document.root(), INDENT)) });
    }
    let pad = " ".repeat(INDENT);
    let lines: String = text.lines().map(|line| format!("{pad}{}\n", super::plain(line))).collect();
    Some(Held { kind: if packed { "compressed text" } else { "text" }, bytes, text: lines })
}

/// Whether a text may hold the character. Of control characters only those that programs colour their messages with;
/// in a short text, which may be base64 by accident, none and ASCII only.
fn readable(c: char, short: bool) -> bool {
    match c {
        '\n' | '\t' | '\r' => true,
        '\u{1b}' | '\u{7}' | '\u{8}' | '\u{c}' => !short,
        c => !c.is_control() && (!short || c.is_ascii()),
    }
}

/// What is compressed in `bytes`, at most [`UNFOLDED`] of it; `None` when nothing is.
fn unfold(bytes: &[u8]) -> Option<Vec<u8>> {
    let zlib = bytes.len() > 2
        && bytes[0] & 0x0f == 8
        && u16::from_be_bytes([bytes[0], bytes[1]]).is_multiple_of(31);
    if !zlib {
        return None;
    }
    let mut all = Vec::new();
    ZlibDecoder::new(bytes).take(UNFOLDED).read_to_end(&mut all).ok()?;
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> String {
        let mut out = Vec::new();
        let status = run(&Arguments {}, &mut io::BufReader::new(text), &mut out, &mut Vec::new());
        assert_eq!(status, crate::cli::FINE);
        String::from_utf8(out).expect("utf-8")
    }

    fn packed(text: &str) -> String {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).expect("memory");
        STANDARD.encode(encoder.finish().expect("memory"))
    }

    #[test]
    fn a_request_shows_its_document() {
        let word = STANDARD.encode("<A><B><![CDATA[x & y]]></B></A>");
        let text = decoded(format!("[D]: DEPLOY  7 {word} \nnext\n").as_bytes());
        assert_eq!(
            text,
            "[D]: DEPLOY  7 (XML, 31 bytes) \n    <A>\n      <B>x &amp; y</B>\n    </A>\nnext\n"
        );
    }

    #[test]
    fn a_compressed_word_is_unfolded() {
        let text =
            decoded(format!("MONITOR_VM SUCCESS 3 17 {}\n", packed("CPU=1\nSTATE=\"a\"\n")).as_bytes());
        assert_eq!(text, "MONITOR_VM SUCCESS 3 17 (compressed text, 16 bytes)\n    CPU=1\n    STATE=\"a\"\n");
    }

    #[test]
    fn what_is_not_base64_of_something_readable_stays_as_it_is() {
        for line in [
            "LOG I 7 Successfully execute virtualization driver operation: deploy.",
            "DEPLOY SUCCESS 7 7eba4a6c-4fa0-4a37-8f35-677b6dcc3662",
            "/var/lib/one/datastores/0/7/disk0",
            "AAAAAAAAAAAAAAAAAAAA",
            "",
            "a  b",
        ] {
            assert_eq!(decoded(format!("{line}\n").as_bytes()), format!("{line}\n"));
        }
        assert_eq!(decoded(b"\xff\xfe x\n"), "\u{fffd}\u{fffd} x\n");
    }

    #[test]
    fn a_line_without_end_is_told_and_not_kept() {
        let (mut out, text) = (Vec::new(), [b"x".repeat(5000), b"\nDEPLOY 7\n".to_vec()].concat());
        let status = decode(&mut io::BufReader::new(&text[..]), 1000, &mut out, &mut Vec::new());
        assert_eq!(status, crate::cli::FINE);
        let head = "x".repeat(200);
        let told = format!("{head} ... (a line of 5000 bytes, too long to be decoded)\nDEPLOY 7\n");
        assert_eq!(String::from_utf8(out).expect("utf-8"), told);
    }

    #[test]
    fn nothing_drives_the_terminal_of_the_reader() {
        assert_eq!(decoded(b"a\x1b[31mb \x07 \xc2\x9b1m\n"), "a\u{fffd}[31mb \u{fffd} \u{fffd}1m\n");
        let word = STANDARD.encode("error: \x1b[31mred\x1b[0m, more\n");
        assert_eq!(
            decoded(format!("LOG {word}\n").as_bytes()),
            "LOG (text, 26 bytes)\n    error: \u{fffd}[31mred\u{fffd}[0m, more\n"
        );
    }

    #[test]
    fn the_info_of_a_reply_is_decoded_however_short_it_is() {
        // `echo -n one-42 | base64` and `echo -n error | base64`
        assert_eq!(
            decoded(b"DEPLOY SUCCESS 42 b25lLTQy\n"),
            "DEPLOY SUCCESS 42 (text, 6 bytes)\n    one-42\n"
        );
        let failure = b"[D]: Message received: DEPLOY FAILURE 42 ZXJyb3I=\n";
        let told = "[D]: Message received: DEPLOY FAILURE 42 (text, 5 bytes)\n    error\n";
        assert_eq!(decoded(failure), told);
        for plain in ["DEPLOY SUCCESS 42 one-42", "SAVE FAILURE 42 shutdown failed", "LOG I 42 b25lLTQy"] {
            assert_eq!(decoded(format!("{plain}\n").as_bytes()), format!("{plain}\n"));
        }
    }

    #[test]
    fn xml_that_is_cut_off_is_shown_as_text() {
        let word = STANDARD.encode("<A><B>never ends");
        assert_eq!(decoded(word.as_bytes()), "(text, 16 bytes)\n    <A><B>never ends\n");
    }
}
