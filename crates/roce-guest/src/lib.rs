//! A guest machine with a stock Debian kernel and its `rdma_rxe`, as a peer for tests.
//!
//! Neither cloud kernels nor CI runners carry `rdma_rxe`, so the kernel is brought along:
//! [`Image::prepare`] fetches Debian packages with apt, lays them out and packs what the guest
//! needs into an initramfs (nothing is installed, everything stays below one directory and is
//! reused while the packages' versions stay the same). [`Guest::boot`] starts it under qemu's
//! software emulation, with its network card on a tap that the caller made, and returns once a
//! program in the guest answers. From then on the guest is driven by running shell commands in
//! it, as many at a time as wanted:
//!
//! ```no_run
//! # fn main() -> Result<(), roce_guest::GuestError> {
//! use roce_guest::{Guest, GuestConfig, Image};
//!
//! let image = Image::prepare("target/guest".as_ref())?;
//! let guest = Guest::boot(&image, &GuestConfig::new("tap0"), |command| command.spawn())?;
//! guest.set_network(4200, &["10.9.0.2/24", "fd00:9::2/64"])?;
//! println!("{}", guest.run_ok("ibv_devinfo")?);
//! guest.power_off()?;
//! # Ok(())
//! # }
//! ```
//!
//! Commands and their output travel over a virtio serial port, not over the network: what a test
//! does to the network (loss, another MTU) does not reach them. When the program that booted the
//! guest ends, however it ends, the port closes and the guest powers itself off.
#![forbid(unsafe_code)]

mod control;
mod cpio;
mod elf;
mod error;
mod image;
mod machine;
mod modules;
mod packages;
mod process;

pub use error::GuestError;
pub use image::Image;
pub use machine::{Guest, GuestConfig, interactive_command};
pub use packages::{Tool, missing_tools};
pub use process::{GuestProcess, Output, Status};
