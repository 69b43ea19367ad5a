//! The monitoring agent of a host.

pub mod capabilities;
pub mod collect;
pub mod config;
pub mod domstats;
pub mod event;
pub mod exec;
pub mod guest;
pub mod key;
pub mod message;
pub mod probes;
pub mod processes;
pub mod recovery;
pub mod state;
pub mod table;
pub mod text;
pub mod virsh;
pub mod wild;
