//! The scripts that run on a host: against a stand-in for virsh, and against real libvirt on the test bed.
#![allow(clippy::disallowed_methods)]

mod bed;
mod callers;
mod faults;
mod hotplug;
mod migrate;
mod node;
mod pci;
mod place;
mod vnm;
