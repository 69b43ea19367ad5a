//! The line protocol with `oned`: requests, replies, log lines, tickets, queue, cancel. Knows nothing of SSH,
//! hosts or XML: its queue orders by the [`Keys`] that the driver supplies.

pub mod actions;
pub mod options;

pub use actions::{
    Actions, Answer, Boxed, Context, Keys, LineForm, LogFn, Overtake, Prepared, Request, Severity, Slot,
    SlotKeeper,
};
