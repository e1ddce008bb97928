//! The extended interface: functions that programs reach through pointers in a context, a completion
//! queue or a queue pair.

pub(crate) mod domain;
pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod values;
