//! What gave a value of the domain: a template, the generator itself, or a computation from what templates gave.

use std::fmt;

use crate::template::Origin;

/// A value of a template: which attribute, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The attribute: `CPU`, `OS.ARCH`, `DISK[1].CACHE` (numbers from 0, only where there may be several).
    pub attribute: String,
    /// Where it stands.
    pub origin: Origin,
}

/// What gave a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// It is the same in every domain, or it is what stands in when no level says anything.
    BuiltIn,
    /// A template gave it as it is.
    Given(Given),
    /// It was worked out.
    Computed {
        /// How, for people: `MEMORY in KiB`.
        how: &'static str,
        /// From which values.
        from: Vec<Given>,
    },
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.attribute, self.origin)
    }
}

impl fmt::Display for Provenance {
    /// `OS.ARCH (defaults file vmm_exec_kvm.conf:12)`, `built-in`, `MEMORY in KiB, from MEMORY (VM)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::Given(given) => given.fmt(f),
            Self::Computed { how, from } => {
                f.write_str(how)?;
                for (number, given) in from.iter().enumerate() {
                    f.write_str(if number == 0 { ", from " } else { ", " })?;
                    given.fmt(f)?;
                }
                Ok(())
            }
        }
    }
}
