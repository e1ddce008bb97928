//! Bytes to RoCEv2 headers and back: opcodes, PSN arithmetic, ICRC.
