//! The files of emulated RDMA devices, as data.
//!
//! Programs read these files beside libibverbs: they list `/sys/class/infiniband`, look for the type
//! of a GID, or check that `/dev/infiniband/uverbs0` exists. [`Tree`] has names and contents as the
//! kernel gives them for rdma_rxe; [`Tree::write_to`] writes them below a folder, from which `roce
//! run` shows them to a program.
//!
//! The counters in the tree are zeros at first. [`CounterTotals`] writes them anew from what the
//! processes of a run publish.
//!
//! ```
//! use roce_verbs::{DeviceNames, NamedDevice};
//! use roce_view::Tree;
//!
//! let devices = NamedDevice::list(&DeviceNames::default())?;
//! print!("{}", Tree::new(&devices, roce_view::hardware_folder));
//! # Ok::<(), roce_verbs::Error>(())
//! ```

#![forbid(unsafe_code)]

mod counters;
mod device_files;
mod function;
mod hardware;
mod tree;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use counters::CounterTotals;
pub use hardware::hardware_folder;
pub use tree::{Node, Tree};
