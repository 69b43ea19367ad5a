//! The monitoring agent of a host.
//!
//! * [`command`], [`start`], [`single`]: the subcommands; one agent for each host id.
//! * [`run`], [`setup`], [`agent`]: the agent's process and what its parts share.
//! * [`watch`], [`events`], [`table`], [`state`], [`event`]: states of VMs, told at once.
//! * [`groups`], [`gather`], [`vm`], [`collect`], [`guest`], [`exec`] and the rest: figures, each period.
//! * [`message`], [`key`], [`send`], [`text`]: what goes over the network, and how.
//! * [`pull`], [`push`]: the formats and the agent of OpenNebula up to 5.10.
//! * [`journal`], [`serving`], [`metrics`], [`look`]: what people and Prometheus see of it.

pub mod agent;
pub mod capabilities;
pub mod collect;
pub mod command;
pub mod config;
pub mod domstats;
pub mod event;
pub mod events;
pub mod exec;
pub mod files;
pub mod gather;
pub mod groups;
pub mod guest;
pub mod journal;
pub mod key;
pub mod look;
pub mod message;
pub mod metrics;
pub mod probes;
pub mod processes;
pub mod pull;
pub mod push;
pub mod recovery;
pub mod run;
pub mod send;
pub mod serving;
pub mod setup;
pub mod single;
pub mod start;
pub mod state;
pub mod store;
pub mod table;
pub mod text;
pub mod virsh;
pub mod vm;
pub mod watch;
pub mod wild;
