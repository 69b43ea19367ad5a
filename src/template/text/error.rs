//! Why a text could not be read to its end.

use std::ops::Range;

use super::place::{Gravity, Picture};

/// A syntax error with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct SyntaxError {
    /// Line from 1.
    pub line: usize,
    /// Column in characters from 1.
    pub column: usize,
    /// The bytes that are wrong; empty at the end of the text.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it, where that is known.
    pub help: Option<&'static str>,
}

impl SyntaxError {
    /// Draws it with its place in `text`, which was read from `file`.
    #[must_use]
    pub fn picture(&self, file: &str, text: &str, colours: bool) -> String {
        Picture {
            file,
            text,
            span: self.span.clone(),
            gravity: Gravity::Error,
            id: Some("syntax"),
            title: &self.message,
            label: "here",
            help: self.help,
        }
        .draw(colours)
    }
}
