//! The language between the driver and the helper on a host: frames, the first line, flow control. No I/O.
//!
//! The helper begins with one line, [`Hello`]; the driver skips what a login shell prints before it. Then both
//! sides send [`Frame`]s. The driver opens commands under numbers of its own choice, each number once. The bytes
//! of every stream of every command are bounded by credit ([`Window`]): a side sends no more than the other has
//! granted, so one command whose output nobody takes can't keep back what belongs to another.

mod credit;
mod frame;
mod hello;
mod parts;

pub use credit::{Overrun, WINDOW, Window};
pub use frame::{
    Decoded, EndedBy, Exit, Frame, FrameError, How, LONGEST_FRAME, Open, Orphan, Refusal, Stream, WhyRefused,
};
pub use hello::{Hello, HelloScan, PROTOCOL, Scanned};
