//! VMs from cloud images: `kvmad vm`, and the same under oned.

mod bed;
mod hand;
pub mod server;
