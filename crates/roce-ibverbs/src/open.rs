//! Opening a device.

use std::os::fd::{AsRawFd, OwnedFd};

use roce_abi::{VERBS_ABI_IS_EXTENDED, ibv_context};
use roce_verbs::{Backend, Device, Error, OpenError, Own};

use crate::cancellation::Uncancellable;
use crate::device_list::ListedDevice;
use crate::{configuration, context, errno, message, operations, panic};

/// `ibv_open_device`
pub(crate) extern "C" fn device(device: &'static ListedDevice) -> *mut ibv_context {
    let Some(_uncancellable) = Uncancellable::with_memory() else { return std::ptr::null_mut() };
    panic::end_process_on_panic();
    message::start_log();
    let config = match configuration::of(device) {
        Ok(config) => config,
        Err(why) => {
            message::say_once(&why);
            return errno::null(libc::EINVAL);
        }
    };
    let requested = config.backend;
    let opened = match Device::open(device.interface(), config) {
        Ok(opened) => {
            if requested != Backend::Udp && opened.backend() == Backend::Udp {
                message::note_once(&FALLBACK);
            }
            opened
        }
        Err(error) => {
            match &error {
                Error::Open(OpenError::NotPermitted { name }) => {
                    message::say_once(&not_permitted(name));
                }
                _ => message::say_once(&error),
            }
            return errno::null(errno::of(&error));
        }
    };
    let command_fd = match Own::make(|| std::fs::File::open("/dev/null")) {
        Ok(file) => file.map(OwnedFd::from),
        Err(error) => return errno::null(error.raw_os_error().unwrap_or(libc::EMFILE)),
    };
    let async_fd = opened.event_fd().as_raw_fd();
    let mut verbs = operations::table();
    verbs.context.device = device.as_c();
    verbs.context.cmd_fd = command_fd.as_raw_fd();
    verbs.context.async_fd = async_fd;
    verbs.context.num_comp_vectors = 1;
    verbs.context.abi_compat = VERBS_ABI_IS_EXTENDED;
    context::give(opened, device, verbs, command_fd)
}

/// What a user is told once where packets travel by UDP sockets unasked.
const FALLBACK: &str = "CAP_NET_RAW is missing, so packets travel by UDP sockets, which is slower; \
                        ROCE_BACKEND=udp says so without this line";

/// Returns what gives a program of others a packet socket. A capability of its own file is not named:
/// the loader ignores `LD_PRELOAD` and `LD_LIBRARY_PATH` then, and the program does not find us.
fn not_permitted(interface: &str) -> String {
    format!(
        "opening a packet socket on {interface} needs CAP_NET_RAW: start the program by `roce run -- \
         PROGRAM`, as root or after `sudo setcap cap_net_raw+ep` on the file of roce, which hands the \
         capability on; by `roce run --local 1 -- PROGRAM` in a private host, which needs no \
         privileges; or start the container with --cap-add NET_RAW"
    )
}
