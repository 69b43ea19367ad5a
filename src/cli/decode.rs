//! `kvmad decode`: lines of a driver log made readable. Words in base64, compressed or not, are shown as what
//! they hold, XML with one element a line.

use std::io::{self, BufRead, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use flate2::read::ZlibDecoder;

use super::pretty;
use crate::template::xml::Document;

/// Most that one compressed word is unfolded to.
const UNFOLDED: u64 = 64 << 20;
/// Shorter words are taken as words.
const SHORTEST: usize = 16;
/// Columns by which what a word holds is indented.
const INDENT: usize = 4;

/// Arguments of `kvmad decode`.
#[derive(Debug, Args)]
pub struct Arguments {}

/// Reads lines from `input` and prints them on `out`.
pub fn run(_: &Arguments, input: &mut dyn BufRead, out: &mut dyn Write, err: &mut dyn Write) -> u8 {
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                // Nobody is left to tell when stderr is gone too.
                let _ = writeln!(err, "stdin can't be read: {error}");
                return super::USAGE;
            }
        }
        if let Err(error) = show(&String::from_utf8_lossy(&line), out) {
            return super::unwritten(&error, err);
        }
    }
    match out.flush() {
        Ok(()) => super::FINE,
        Err(error) => super::unwritten(&error, err),
    }
}

/// The line with a remark in place of each word that holds something, and below it what they hold.
fn show(line: &str, out: &mut dyn Write) -> io::Result<()> {
    let line = line.trim_end_matches(['\n', '\r']);
    let mut contents = Vec::new();
    let mut words = Vec::new();
    for word in line.split(' ') {
        match held(word) {
            None => words.push(word.to_owned()),
            Some(found) => {
                words.push(format!("({}, {} bytes)", found.kind, found.bytes));
                contents.push(found.text);
            }
        }
    }
    writeln!(out, "{}", words.join(" "))?;
    contents.iter().try_for_each(|text| out.write_all(text.as_bytes()))
}

/// What a word holds.
struct Held {
    kind: &'static str,
    bytes: usize,
    text: String,
}

fn held(word: &str) -> Option<Held> {
    let body = word.trim_end_matches('=');
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    if word.len() < SHORTEST || !word.len().is_multiple_of(4) || !body.bytes().all(inside) {
        return None;
    }
    let decoded = STANDARD.decode(word).ok()?;
    let unfolded = unfold(&decoded);
    let packed = unfolded.is_some();
    let text = String::from_utf8(unfolded.unwrap_or(decoded)).ok()?;
    let readable = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    if text.is_empty() || !text.chars().all(readable) {
        return None;
    }
    let bytes = text.len();
    let markup = text.trim_start().starts_with('<');
    if let Some(Ok(document)) = markup.then(|| Document::parse(text.as_str())) {
        let kind = if packed { "compressed XML" } else { "XML" };
        return Some(Held { kind, bytes, text: pretty::xml(document.root(), INDENT) });
    }
    let pad = " ".repeat(INDENT);
    let lines: String = text.lines().map(|line| format!("{pad}{line}\n")).collect();
    Some(Held { kind: if packed { "compressed text" } else { "text" }, bytes, text: lines })
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
    fn xml_that_is_cut_off_is_shown_as_text() {
        let word = STANDARD.encode("<A><B>never ends");
        assert_eq!(decoded(word.as_bytes()), "(text, 16 bytes)\n    <A><B>never ends\n");
    }
}
