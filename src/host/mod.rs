//! Runs a command somewhere: on a host over the driver's connection, or on the front-end.

pub mod capture;
pub mod channel;
pub mod collect;
mod connection;
mod entry;
pub mod fallback;
pub mod gate;
pub mod helper;
pub mod job;
pub mod lines;
mod local;
pub mod pool;
pub mod process;
pub mod push;
pub mod ssh;
pub mod stdin;
pub mod supervise;

pub use job::{
    AlwaysMyTurn, Boxed, Ending, HostName, Job, LineFn, Outcome, Place, Program, Purpose, Runner, Turn, Watch,
};
pub use pool::{Pool, PoolError, PoolOptions, Seen};
