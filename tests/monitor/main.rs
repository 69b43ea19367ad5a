//! Monitoring: the agent as a program, the scripts that start it, the drivers' conversations; `bed` on the test bed.
#![allow(clippy::disallowed_methods)] // the tests start programs themselves

mod agent;
mod bed;
mod conversation;
#[path = "../bed/harness/mod.rs"]
mod harness;
mod messages;
mod stand;
