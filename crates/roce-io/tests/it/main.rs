//! Back ends on interfaces of the kernel.

mod common;
mod lo_trains;
mod parked;
mod tap_trains;
mod veth_filter;
mod veth_trains;
mod veth_xdp;
