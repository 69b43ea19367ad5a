//! Against real libvirt.
