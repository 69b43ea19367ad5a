//! Why there is no domain.

use super::tree::Given;

/// Why there is no domain. The doc comments are the messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// the VM has no MEMORY; give it a whole number of MiB
    #[error("the VM has no MEMORY; give it a whole number of MiB")]
    NoMemory,
    /// MEMORY is {0:?}; it must be a whole number of MiB
    #[error("{given} is {text:?}; it must be a whole number of MiB")]
    Memory {
        /// Where it stands.
        given: Given,
        /// What it holds.
        text: String,
    },
}
