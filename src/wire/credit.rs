//! Flow control of one stream in one direction.

/// Bytes that may be under way on a stream before the first grant.
pub const WINDOW: u32 = 256 << 10;

/// The other side sent more than it was granted: it does not keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more bytes were sent than were granted")]
pub struct Overrun;

/// What may still be sent on a stream. The sender keeps one to know how much it may send, the receiver one to
/// check it and to grant in large steps instead of after every read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    left: u32,
    owed: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self { left: WINDOW, owed: 0 }
    }
}

impl Window {
    /// Bytes that may be sent now.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left as usize
    }

    /// Accounts for bytes that were sent, or came.
    ///
    /// # Errors
    /// [`Overrun`] when there was less room.
    pub fn take(&mut self, count: usize) -> Result<(), Overrun> {
        let count = u32::try_from(count).map_err(|_| Overrun)?;
        self.left = self.left.checked_sub(count).ok_or(Overrun)?;
        Ok(())
    }

    /// Sender: the other side has granted this much more. Never beyond the full window.
    pub fn grant(&mut self, count: u32) {
        self.left = self.left.saturating_add(count).min(WINDOW);
    }

    /// Receiver: this much was consumed. Gives what is to be granted to the sender now, in steps of at least a
    /// quarter of the window.
    pub fn consumed(&mut self, count: usize) -> Option<u32> {
        self.owed = self.owed.saturating_add(u32::try_from(count).unwrap_or(u32::MAX)).min(WINDOW);
        if self.owed < WINDOW / 4 {
            return None;
        }
        let step = std::mem::take(&mut self.owed);
        self.grant(step);
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn more_than_was_granted_is_an_overrun() {
        let mut window = Window::default();
        assert_eq!(window.take(WINDOW as usize), Ok(()));
        assert_eq!(window.take(1), Err(Overrun));
        window.grant(5);
        assert_eq!((window.take(6), window.take(5)), (Err(Overrun), Ok(())));
    }

    proptest! {
        #[test]
        fn a_sender_that_keeps_to_it_is_never_stuck_and_never_too_fast(
            sends in proptest::collection::vec(1usize..100_000, 1..200),
        ) {
            let (mut sender, mut receiver) = (Window::default(), Window::default());
            for want in sends {
                let mut want = want;
                while want > 0 {
                    let now = want.min(sender.left());
                    prop_assert!(now > 0, "stuck");
                    sender.take(now).unwrap();
                    receiver.take(now).unwrap();
                    if let Some(grant) = receiver.consumed(now) {
                        sender.grant(grant);
                    }
                    want -= now;
                }
            }
        }
    }
}
