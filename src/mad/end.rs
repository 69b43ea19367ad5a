//! How a driver comes to its end.

use std::process::ExitCode;

/// Why a driver ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// stdin ended: oned closed the pipe, or is gone.
    InputClosed,
    /// After FINALIZE or a signal all that ran is finished.
    Finalized,
    /// stdout can't be written to.
    OutputLost,
}

impl End {
    /// Exit status of the driver: 0 after FINALIZE, else 255.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Finalized => 0,
            Self::InputClosed | Self::OutputLost => 255,
        }
    }
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        Self::from(end.code())
    }
}
