//! The promise of one reply to one request.

use super::actions::Answer;
use super::form::ReplyTo;
use super::output::Output;

/// The promise of one reply. It ends in one of three ways: answered; cancelled, then the answer is not written;
/// dropped unanswered (a fault of the driver, a panic), then it answers FAILURE by itself.
pub struct Ticket {
    output: Output,
    serial: u64,
    subject: i64,
    to: ReplyTo,
    open: bool,
}

impl Ticket {
    /// Promises a reply. `spared`: it is written also when `subject` is cancelled.
    #[must_use]
    pub fn new(output: &Output, serial: u64, subject: i64, spared: bool, to: ReplyTo) -> Self {
        output.expect(serial, spared);
        Self { output: output.clone(), serial, subject, to, open: true }
    }

    /// Answers. Nothing is written when the request has been cancelled.
    pub fn answer(mut self, answer: &Answer) {
        self.settle(answer);
    }

    fn settle(&mut self, answer: &Answer) {
        self.open = false;
        let written = self.output.reply(self.serial, self.subject, &self.to, answer);
        if !written {
            tracing::debug!(verb = %self.to.verb, id = %self.to.id, ?answer, "cancelled: the answer is not written");
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            let reason = format!("the driver dropped {} without an answer: a fault of kvmad", self.to.verb);
            tracing::error!(id = %self.to.id, "{reason}");
            self.settle(&Answer::Failure(reason));
        }
    }
}
