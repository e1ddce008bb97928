//! A guest machine with a stock Debian kernel and its `rdma_rxe`, as a peer for tests.
//!
//! Cloud kernels and CI runners have no `rdma_rxe`, so [`Image::prepare`] fetches Debian packages
//! with apt and packs a kernel and an initramfs. It installs nothing: all files stay below one
//! directory and are reused while the package versions stay the same. [`Guest::boot`] starts the
//! guest in qemu's software emulation, with its network card on a tap of the caller, and returns
//! once a program in the guest responds. The caller then runs shell commands in the guest, any
//! number at a time:
//!
//! ```no_run
//! # fn main() -> Result<(), roce_guest::GuestError> {
//! use roce_guest::{Guest, GuestConfig, Image};
//!
//! let image = Image::prepare("target/guest".as_ref())?;
//! let guest = Guest::boot(&image, &GuestConfig::new("tap0"), |mut command| command.spawn())?;
//! guest.set_network(4200, &["10.9.0.2/24", "fd00:9::2/64"])?;
//! println!("{}", guest.run_ok("ibv_devinfo")?);
//! guest.power_off()?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Image::prepare_with`] takes the [`Kernel`] of another Debian suite: newer ones have more operations, and
//! may come with the programs of their release. It also takes the guest's [`Architecture`].
//!
//! Commands and their output use a virtio serial port, so loss or another MTU of the network does
//! not affect them. When the program that booted the guest ends, the port closes and the guest
//! powers off.
#![forbid(unsafe_code)]

mod architecture;
mod control;
mod cpio;
mod elf;
mod error;
mod image;
mod kernel;
mod machine;
mod mirror;
mod modules;
mod packages;
mod process;
mod status;
mod tool;

pub use architecture::Architecture;
pub use error::GuestError;
pub use image::Image;
pub use kernel::Kernel;
pub use machine::{Card, Guest, GuestConfig, interactive_command};
pub use mirror::debian_mirror;
pub use process::{GuestProcess, Output};
pub use status::Status;
pub use tool::{Tool, missing_tools};
