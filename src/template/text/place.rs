//! Lines and columns of byte offsets, and the picture of a place for people.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// Turns byte offsets into lines and columns. Cheap when asked in rising order.
#[derive(Debug, Clone)]
pub struct Places<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    column: usize,
}

impl<'a> Places<'a> {
    /// For offsets into `text`.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, line: 1, column: 1 }
    }

    /// Line and column (both from 1, the column in characters) of the byte offset `at`; the end when it is
    /// beyond the text, the start of the character when it is inside one.
    pub fn of(&mut self, at: usize) -> (usize, usize) {
        let at = floor(self.text, at);
        if at < self.at {
            *self = Self::new(self.text);
        }
        for character in self.text[self.at..at].chars() {
            if character == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.at = at;
        (self.line, self.column)
    }
}

/// The byte offset of a line and column (from 1, the column in characters); the end of the line or of the
/// text when it is beyond.
#[must_use]
pub fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start = match line.saturating_sub(1) {
        0 => 0,
        n => match memchr::memchr_iter(b'\n', text.as_bytes()).nth(n - 1) {
            Some(end) => end + 1,
            None => return text.len(),
        },
    };
    let rest = &text[start..];
    let line = rest.split('\n').next().unwrap_or("");
    let within = line.char_indices().nth(column.saturating_sub(1)).map_or(line.len(), |(at, _)| at);
    start + within
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// How grave what a picture shows is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gravity {
    /// Something is wrong.
    Error,
    /// Something is probably not meant.
    Warning,
    /// Something to know.
    Note,
}

/// What a picture shows.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The bytes to mark.
    pub span: Range<usize>,
    /// How grave it is.
    pub gravity: Gravity,
    /// A word for what it is, if there is one.
    pub id: Option<&'a str>,
    /// The line above the picture.
    pub title: &'a str,
    /// Text beside the mark.
    pub label: &'a str,
    /// What to do, below the picture.
    pub help: Option<&'a str>,
}

/// Longest piece of one line that is shown, in bytes to each side of the mark.
const SHOWN: usize = 160;

impl Picture<'_> {
    /// Draws it: title, place, the marked line, help. Ends without a newline.
    #[must_use]
    pub fn draw(&self, colours: bool) -> String {
        let (line, column) = Places::new(self.text).of(self.span.start);
        let window = self.window();
        let shown =
            self.text[window.clone()].replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{fffd}");
        let start = self.shown_offset(&window, self.span.start);
        let end = self.shown_offset(&window, self.span.end.max(self.span.start)).max(start);
        let level = match self.gravity {
            Gravity::Error => Level::ERROR,
            Gravity::Warning => Level::WARNING,
            Gravity::Note => Level::NOTE,
        };
        let title = format!("{}, line {line}, column {column}: {}", self.file, self.title);
        let mark = AnnotationKind::Primary.span(start..end).label(self.label.to_owned());
        let snippet = Snippet::source(shown).line_start(line).annotation(mark);
        let title = level.primary_title(title);
        let title = match self.id {
            Some(id) => title.id(id.to_owned()),
            None => title,
        };
        let mut group = title.element(snippet);
        if let Some(help) = self.help {
            group = group.element(Level::HELP.message(help.to_owned()));
        }
        let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    /// The part of the text that is shown: the line of the mark's start, cut to what fits.
    fn window(&self) -> Range<usize> {
        let at = floor(self.text, self.span.start);
        let line_start = self.text[..at].rfind('\n').map_or(0, |n| n + 1);
        let line_end = self.text[at..].find('\n').map_or(self.text.len(), |n| at + n);
        let start = floor(self.text, line_start.max(at.saturating_sub(SHOWN)));
        let end = floor(self.text, line_end.min(at.saturating_add(SHOWN)));
        start..end.max(start)
    }

    /// Where an offset of the text is in the shown text, in which some characters are replaced.
    fn shown_offset(&self, window: &Range<usize>, at: usize) -> usize {
        let at = floor(self.text, at).clamp(window.start, window.end);
        let replaced = |c: char| c.is_control() && c != '\n' && c != '\t';
        let width = |c: char| if replaced(c) { '\u{fffd}'.len_utf8() } else { c.len_utf8() };
        self.text[window.start..at].chars().map(width).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_lines_and_columns_in_any_order() {
        let text = "ab\nä=1\n\nz";
        let mut places = Places::new(text);
        assert_eq!(places.of(0), (1, 1));
        assert_eq!(places.of(2), (1, 3));
        assert_eq!(places.of(3), (2, 1));
        assert_eq!(places.of(4), (2, 1), "inside the character");
        assert_eq!(places.of(5), (2, 2));
        assert_eq!(places.of(8), (3, 1));
        assert_eq!(places.of(1), (1, 2));
        assert_eq!(places.of(99), (4, 2));
    }

    #[test]
    fn lines_and_columns_become_offsets() {
        let text = "ab\nä=1\n\nz";
        for at in [0, 1, 2, 3, 5, 6, 7, 8, 9, 10] {
            if text.is_char_boundary(at) {
                let (line, column) = Places::new(text).of(at);
                assert_eq!(offset_of(text, line, column), at, "{line}:{column}");
            }
        }
        assert_eq!(offset_of(text, 1, 99), 2);
        assert_eq!(offset_of(text, 99, 1), text.len());
        assert_eq!(offset_of("", 1, 1), 0);
    }

    #[test]
    fn a_picture_marks_the_place_and_names_it() {
        let text = "A = 1\nB = [ C = 1 D = 2 ]\n";
        let picture = Picture {
            file: "x.conf",
            text,
            span: 18..19,
            gravity: Gravity::Error,
            id: None,
            title: "a comma is missing",
            label: "before this",
            help: Some("write `, D`"),
        };
        let drawn = picture.draw(false);
        assert!(drawn.contains("x.conf, line 2, column 13: a comma is missing"), "{drawn}");
        assert!(drawn.contains("B = [ C = 1 D = 2 ]"), "{drawn}");
        assert!(drawn.contains("^ before this"), "{drawn}");
        assert!(drawn.contains("help: write `, D`"), "{drawn}");
    }

    #[test]
    fn a_picture_of_a_line_of_megabytes_stays_small_and_control_bytes_are_not_shown() {
        let text = format!("{}\u{1b}[31m=\r{}", "ä".repeat(1 << 20), "b".repeat(1 << 20));
        let at = text.find('=').expect("there");
        let picture = Picture {
            file: "f",
            text: &text,
            span: at..at + 1,
            gravity: Gravity::Warning,
            id: None,
            title: "t",
            label: "here",
            help: None,
        };
        let drawn = picture.draw(false);
        assert!(drawn.len() < 2_000, "{}", drawn.len());
        assert!(!drawn.contains('\u{1b}') && !drawn.contains('\r'));
    }
}
