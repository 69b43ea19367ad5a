//! The text form of templates: `vmm_exec_kvm.conf`, templates of hosts and clusters, templates of VMs.
//!
//! It is read exactly as `oned` 7.4 reads it, with all that surprises: an unquoted value beats a quoted one
//! when it is longer, a `#` behind `=` is no comment, a syntax error in the defaults file leaves what stands
//! before it in force. What surprises is said in [`Notice`]s; why the text ends early, in a [`SyntaxError`].

mod error;
mod notice;
mod parse;
mod place;
mod scan;
#[cfg(test)]
mod tests;

pub use error::SyntaxError;
pub use notice::{Notice, NoticeKind};
pub use parse::{Parsed, Rules, parse, parse_bytes};
pub use place::{Gravity, Picture, Places, offset_of};
