//! What a host can be asked for and may not be able to tell.

/// The answer, or why there is none.
pub type Told<T> = Result<T, String>;
