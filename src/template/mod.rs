//! OpenNebula templates: their text form and the XML documents they become.

pub mod xml;
