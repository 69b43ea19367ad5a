//! kvmad: the KVM driver layer for OpenNebula.
//!
//! The way of a request, as the folders tell it:
//!
//! * [`mad`] speaks the line protocol with `oned`: requests in, one reply each out, log lines between.
//! * [`vmm`] turns a request and its document into a plan of steps with roll-back, and carries it out.
//! * [`im`] does the same for the monitoring of hosts.
//! * [`host`] runs each step somewhere: on a host over one lasting connection, or on the front-end.
//! * [`wire`] is the language on that connection.
//! * [`node`] is what answers there: the static program `kvmad-node` and its subcommands.
//! * [`domain`] makes libvirt XML from a VM document; [`template`] reads the documents and the defaults.
//! * [`settings`] is what can be set, and where things are; [`start`] is what both drivers do first, [`script`] how they run one.
//! * [`conf`] is what the files of an admin may say: one table for their check, their documentation and what is shipped.
//! * [`cli`] is `kvmad`, the command for people.

pub mod cli;
pub mod conf;
pub mod domain;
pub mod host;
pub mod im;
pub mod mad;
pub mod node;
pub mod script;
pub mod settings;
pub mod start;
pub mod template;
pub mod vmm;
pub mod wire;
