//! OpenNebula templates: their text form and the XML documents they become.

pub mod document;
pub mod lookup;
pub mod normalise;
pub mod number;
pub mod text;
pub mod value;
pub mod xml;

pub use value::{Attribute, Level, Member, Origin, Template, Value};
