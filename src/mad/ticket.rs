//! The promise of one reply to one request.

use super::actions::Answer;
use super::form::ReplyTo;
use super::output::Output;

/// The promise of one reply. It ends in one of three ways: answered; cancelled, then the answer is not written;
/// dropped unanswered (a fault of the driver, a panic), then it answers FAILURE by itself.
pub struct Ticket {
    output: Output,
    serial: u64,
    open: bool,
}

impl Ticket {
    /// Promises a reply. `spared`: it is written also when `subject` is cancelled.
    #[must_use]
    pub fn new(output: &Output, serial: u64, subject: i64, spared: bool, to: ReplyTo) -> Self {
        output.expect(serial, subject, spared, to);
        Self { output: output.clone(), serial, open: true }
    }

    /// Answers. Nothing is written when the request has been cancelled.
    pub fn answer(mut self, answer: &Answer) {
        self.open = false;
        if !self.output.reply(self.serial, answer) {
            tracing::debug!(
                serial = self.serial,
                ?answer,
                "the request was ended: its answer is not written"
            );
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            let reason = "the driver dropped the request without an answer: a fault of kvmad".to_owned();
            if self.output.reply(self.serial, &Answer::Failure(reason)) {
                tracing::error!(serial = self.serial, "a request was dropped without an answer");
            }
        }
    }
}
