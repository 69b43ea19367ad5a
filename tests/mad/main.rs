//! The conversation with oned: a driver of canned actions, fed through real pipes, in this process and as a program.
#![allow(clippy::disallowed_methods)]

mod cancel;
mod canned;
mod flood;
mod harness;
mod lines;
mod order;
mod program;
mod readers;
mod recorded;
mod start;
