//! Frames between the driver and the helper on a host: encode, decode, flow control. No I/O.
