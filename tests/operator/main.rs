//! The commands for the people who run hosts, against the hosts of the test bed: the doctor, VMs from cloud images, packages.
#![allow(clippy::disallowed_methods)] // a test starts programs itself

mod attributes;
mod doctor;
#[path = "../bed/harness/mod.rs"]
mod harness;
mod packages;
mod readme;
mod vm;
mod walk;
