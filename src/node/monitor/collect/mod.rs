//! What a host has and uses, read from /proc, /sys and the file systems. Each collector adds its attributes to a
//! text; what can't be read is left out or 0, and never takes others down.

pub mod cpu;
pub mod datastores;
pub mod memory;
pub mod net;
pub mod numa;
pub mod pci;
pub mod system;
