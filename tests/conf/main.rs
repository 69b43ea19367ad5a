//! Template text, VM documents made from it, and the commands for who edits the defaults.

#![allow(clippy::disallowed_methods)]

mod check_conf;
mod domain_xml;
mod normalise;
mod shipped;
mod text;
