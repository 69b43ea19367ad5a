//! Domains: the corpus of what OpenNebula 7.4 made, the rules one by one, and what must never happen.

mod attached;
mod compare;
mod corpus;
mod hostile;
mod libvirt;
mod properties;
mod rules;
mod schema;
mod support;
