//! What is worth a line in the log while settings are read.

/// Something odd that does not keep the settings from being used (an unknown key), for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice(pub String);
