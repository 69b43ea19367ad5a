//! What happens beside the dispatcher, as it is told.

use tokio::sync::oneshot;

use super::reader::Input;

/// What the dispatcher is told.
pub(super) enum Event {
    /// Something came from stdin.
    Input(Input),
    /// The run of a request is over and answered.
    Finished(u64),
    /// A running request waits for a connection.
    Waiting(u64),
    /// It has one, and wants its slot again.
    Ready { serial: u64, place: String, granted: oneshot::Sender<()> },
    /// A place does not answer.
    Unreachable(String),
    /// stdout can't be written to.
    OutputLost(String),
    /// A signal says that the driver should end.
    Signal(&'static str),
}
