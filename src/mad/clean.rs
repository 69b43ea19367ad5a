//! Makes one clean line of any text: what comes from scripts must never look like a message of its own.

/// Between the lines of a text that became one.
const SEPARATOR: &str = "; ";
/// At the end of a text that was too long.
const CUT: &str = " ...";

/// One line of `text`: its lines trimmed and joined by `; `, empty ones left out, control characters replaced by
/// blanks, at most `limit` bytes (a longer one is cut at a character and ends in ` ...`).
#[must_use]
pub fn line(text: &str, limit: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(limit) + SEPARATOR.len());
    let mut start = 0;
    for end in memchr::memchr2_iter(b'\n', b'\r', text.as_bytes()).chain([text.len()]) {
        push_part(&mut clean, &text[start..end], limit);
        if clean.len() > limit {
            break;
        }
        start = end + 1;
    }
    cut(clean, limit)
}

/// Adds one line of a text, as far as the limit makes sense.
fn push_part(clean: &mut String, part: &str, limit: usize) {
    let part = part.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    if part.is_empty() {
        return;
    }
    if !clean.is_empty() {
        clean.push_str(SEPARATOR);
    }
    for c in part.chars() {
        clean.push(if c.is_control() { ' ' } else { c });
        if clean.len() > limit {
            return;
        }
    }
}

fn cut(mut text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit.saturating_sub(CUT.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    if limit >= CUT.len() {
        text.push_str(CUT);
    }
    text
}

/// The bytes of one message: whatever would end or break it is replaced by a blank, and it ends in a newline.
#[must_use]
pub fn message(text: &str) -> Vec<u8> {
    let breaks = |byte: u8| byte < b' ' || byte == 0x7f;
    let mut bytes: Vec<u8> = text.bytes().map(|byte| if breaks(byte) { b' ' } else { byte }).collect();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_joined_and_control_characters_are_blanks() {
        assert_eq!(line("one\r\n\n  two \nthree\u{0}\t!\u{1b}[0m\n", 100), "one; two; three  ! [0m");
        assert_eq!(line("\n \r\n", 100), "");
        assert_eq!(line("a\u{85}b\u{9f}", 100), "a b");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        assert_eq!(line("0123456789", 10), "0123456789");
        assert_eq!(line("0123456789x", 10), "012345 ...");
        assert_eq!(line("ääääää", 10), "äää ...");
        assert_eq!(line("abc", 2), "");
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_line_or_its_limit(text in any::<String>(), limit in 0usize..200) {
            let clean = line(&text, limit);
            prop_assert!(clean.len() <= limit);
            prop_assert!(!clean.chars().any(char::is_control));
            let message = message(&text);
            prop_assert_eq!(message.iter().filter(|byte| **byte == b'\n').count(), 1);
            prop_assert!(message.ends_with(b"\n") && std::str::from_utf8(&message).is_ok());
        }
    }
}
