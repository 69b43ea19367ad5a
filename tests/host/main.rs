//! Jobs run through a [`kvmad::host::Pool`]: against a real sshd on loopback, by the helper and by the fallback,
//! and on the front-end.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs)]

mod commands;
mod connections;
mod killed;
mod pushes;
mod server;
