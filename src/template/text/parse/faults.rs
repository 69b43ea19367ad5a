//! What to say when the grammar is broken.

use std::ops::Range;

use super::{Parser, Word};
use crate::template::text::error::SyntaxError;
use crate::template::text::scan::{Kind, Token};

const FORBIDDEN: &str =
    "`]]>` cannot stand in a value that ends in its line; the line and all that follows is lost";

impl Parser<'_> {
    fn fault(&mut self, span: Range<usize>, message: String, help: Option<&'static str>) -> SyntaxError {
        let (line, column) = self.places.of(span.start);
        SyntaxError { line, column, span, message, help }
    }

    fn at_end(&mut self, message: String, help: Option<&'static str>) -> SyntaxError {
        let end = self.text.len();
        self.fault(end..end, message, help)
    }

    /// The bytes of a token without the blanks and line ends around it.
    fn core(&self, token: &Token) -> Range<usize> {
        let text = &self.text[token.range.clone()];
        let blank = [' ', '\t', '\n'];
        let start = token.range.start + (text.len() - text.trim_start_matches(blank).len());
        let end = token.range.end - (text.len() - text.trim_end_matches(blank).len());
        start.min(end)..end
    }

    pub(super) fn wrong(&mut self, token: &Token, message: &str, help: Option<&'static str>) -> SyntaxError {
        let core = self.core(token);
        if token.kind == Kind::Forbidden {
            return self.fault(core, FORBIDDEN.to_owned(), None);
        }
        self.fault(core, message.to_owned(), help)
    }

    pub(super) fn stray_comma(&mut self, token: &Token) -> SyntaxError {
        let help = "put a value that holds a comma in quotes; attributes are not separated by commas";
        self.wrong(token, "a comma stands outside of [ ]", Some(help))
    }

    pub(super) fn stray_close(&mut self, token: &Token) -> SyntaxError {
        let opened = self.was_dropped(b'[');
        let help = if opened {
            "the `[` must stand in the line of its `=`"
        } else {
            "remove it, or look for an earlier `]` that closed the vector too soon"
        };
        self.wrong(token, "this `]` closes nothing", Some(help))
    }

    /// Behind a name stands something other than `=`. `dropped` is how many bytes were dropped before.
    pub(super) fn no_sign(&mut self, name: &Word, token: Option<&Token>, dropped: usize) -> SyntaxError {
        let shown: String = name.text.chars().take(60).collect();
        let message = format!("`=` must stand behind the name `{shown}`");
        let fresh = self.scanner.dropped().get(dropped..).unwrap_or(&[]);
        let help = if self.in_last_comment(name) {
            "a comment in the last line counts only with a line end behind it: add one"
        } else if fresh.iter().any(|d| d.at == name.span.end) {
            "names consist of letters, digits and _ only"
        } else {
            "put a value that holds blanks or `=` in quotes, begin a comment with #"
        };
        match token {
            Some(token) if token.kind == Kind::Forbidden => self.wrong(token, "", None),
            _ => self.fault(name.span.clone(), message, Some(help)),
        }
    }

    /// Whether `name` stands behind a `#` in a last line that has no line end.
    fn in_last_comment(&self, name: &Word) -> bool {
        let line = self.text[..name.span.start].rfind('\n').map_or(0, |n| n + 1);
        !self.text[name.span.start..].contains('\n') && self.text[line..name.span.start].contains('#')
    }

    fn was_dropped(&self, byte: u8) -> bool {
        self.scanner.dropped().iter().any(|d| !d.in_value && self.text.as_bytes()[d.at] == byte)
    }

    /// Behind `=` stands no value.
    pub(super) fn no_value(&mut self, name: &Word, token: Option<&Token>) -> SyntaxError {
        let shown: String = name.text.chars().take(60).collect();
        let message = format!("the value of `{shown}` is missing");
        match token {
            Some(token) => self.wrong(token, &message, None),
            None => self.fault(
                name.span.clone(),
                message,
                Some("write \"\" for an empty value, or end the last line with a line end"),
            ),
        }
    }

    pub(super) fn empty_member(&mut self, name: &Word) -> SyntaxError {
        let shown: String = name.text.chars().take(60).collect();
        let message = format!("the value of the member `{shown}` is missing");
        self.fault(name.span.clone(), message, Some("an empty member is written as \"\""))
    }

    /// Behind `[` or a comma stands no member.
    pub(super) fn no_member(
        &mut self,
        open: &Range<usize>,
        token: Option<&Token>,
        first: bool,
    ) -> SyntaxError {
        let Some(token) = token else { return self.not_closed(open) };
        let (message, help) = match (&token.kind, first) {
            (Kind::Close, _) => ("a member must follow the comma", "remove the comma before `]`"),
            (Kind::Comma, true) => ("a member must stand before the comma", "remove the comma behind `[`"),
            (Kind::Comma, false) => ("a member must stand between two commas", "remove one of them"),
            _ => ("the name of a member must stand before this", "write NAME = \"value\""),
        };
        self.wrong(token, message, Some(help))
    }

    /// Behind a member stands neither a comma nor `]`.
    pub(super) fn no_comma(&mut self, open: &Range<usize>, token: Option<&Token>) -> SyntaxError {
        let Some(token) = token else { return self.not_closed(open) };
        let help = match token.kind {
            Kind::Name => "members are separated by commas; a value that holds blanks stands in quotes",
            _ => "put a value that holds `=` in quotes",
        };
        self.wrong(token, "a comma or `]` must stand before this", Some(help))
    }

    fn not_closed(&mut self, open: &Range<usize>) -> SyntaxError {
        let (line, _) = self.places.of(open.start);
        let message = format!("the text ends inside the [ of line {line}");
        self.at_end(message, Some("close it with ]"))
    }
}
