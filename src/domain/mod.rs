//! Libvirt XML from a VM document and the defaults of `vmm_exec_kvm.conf`. No I/O.
