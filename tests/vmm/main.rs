//! The VMM driver against what OpenNebula's core sent: documents and conversations recorded with 7.4, 5.12 and
//! 4.14 (`tests/corpus`), and what its drivers ran for them.

mod carried;
mod contracts;
mod corpus;
mod devices;
mod expected;
mod faults;
mod hostile;
mod lives;
mod program;
mod recorder;
mod replay;
mod show;
mod table;
mod text;
