//! Scripted faults as sentences: which packet, call or completion meets which fault.
//!
//! A [`FaultRule`] is about packets, a [`VerbRule`] about calls of libibverbs and completions, a [`LinkRule`] about
//! links, a [`DeviceRule`] about what devices lack, and a [`FaultSentence`] is one of them. A [`Requirement`] is what a run with such faults has to show. `parse` reads a sentence, and `Display` writes the same one. [`RuleCounter`] and
//! [`VerbCounter`] find what a rule means; what then happens is their caller's work: this crate has no I/O, and neither
//! reading nor counting allocates.
//!
//! ```
//! use roce_faults::{FaultAction, FaultRule, FaultSentence};
//!
//! let sentence = FaultSentence::parse("drop every 3rd request of queue pair 2")?;
//! let FaultSentence::Packets(FaultRule { action, packets }) = sentence else { panic!() };
//! assert_eq!(action, FaultAction::Drop);
//! assert!(packets.which.includes(6, 0) && !packets.which.includes(7, 0));
//! # Ok::<(), roce_faults::FaultRuleError<'_>>(())
//! ```
//!
//! The feature `std`, which is on by default, is passed on to roce-wire. Without it the crate needs no operating system.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

mod device_rule;
mod fault_rule;
mod fault_sentence;
mod link_rule;
mod requirement;
mod sentence;
mod verb_rule;
mod window;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use device_rule::{DeviceLimit, DeviceLimits, DeviceRule};
pub use fault_rule::{
    FaultAction, FaultDirection, FaultRule, PacketFacts, PacketKind, PacketSelector, RuleCounter,
    SeenPacket, Sender,
};
pub use fault_sentence::FaultSentence;
pub use link_rule::{LinkRule, Outage};
pub use requirement::Requirement;
pub use sentence::{FaultRuleError, Which};
pub use verb_rule::{
    Errno, FaultEventKind, FaultStatus, VerbCounter, VerbFault, VerbMoment, VerbRule, VerbSelector,
};
pub use window::Window;
