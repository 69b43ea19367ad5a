//! Monitoring: the agent as a program, the scripts that start it, the drivers' conversations.
#![allow(clippy::disallowed_methods)] // the tests start programs themselves

mod agent;
mod conversation;
mod stand;
