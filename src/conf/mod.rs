//! What the files of an admin may say: the keys of `vmm_exec_kvm.conf` and the variables of `kvmrc`.
//!
//! One table each. The check of these files, their documentation and the files that are shipped all come from
//! them, so that they cannot differ.

pub mod docs;
pub mod findings;
mod key;
pub mod kvmrc;
pub mod nearest;
pub mod shipped;
mod unread;
pub mod vmm;

pub use key::{Doubt, Inside, Key, Shipped, Takes};
pub use unread::why_unread;
