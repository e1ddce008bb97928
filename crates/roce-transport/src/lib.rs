//! The RoCEv2 transport as pure computation: no sockets, no clock, no threads.
