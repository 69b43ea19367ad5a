//! The line protocol with `oned`: requests, replies, log lines, tickets, queue, cancel. Knows nothing of SSH,
//! hosts or XML: its queue orders by the [`Keys`] that the driver supplies.

pub mod actions;
pub mod clean;
mod dispatch;
pub mod end;
mod event;
pub mod form;
pub mod line;
pub mod options;
pub mod output;
pub mod queue;
pub mod reader;
pub mod serve;
mod slot;
pub mod ticket;

pub use actions::{
    Actions, Answer, Boxed, Context, Keys, LineForm, LogFn, Overtake, Prepared, Request, Severity, Slot,
    SlotKeeper,
};
pub use end::End;
pub use form::{Form, PlainForm, ReplyTo};
pub use serve::{Setup, serve, stdio};
