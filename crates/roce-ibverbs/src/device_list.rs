//! The list of devices.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{EINVAL, ENOMEM};
use roce_abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device, verbs_device};
use roce_verbs::{DeviceNames, Error, NamedDevice, PortRate, environment};

use crate::cancellation::Uncancellable;
use crate::object::{Object, Shared};
use crate::{errno, message, panic};

/// A device of a list. It lives as long as the process, so that no list has to outlive a context.
#[repr(C)]
pub(crate) struct ListedDevice {
    c: Shared<verbs_device>,
    named: NamedDevice,
    /// The device that was found before.
    next: *const ListedDevice,
}

// SAFETY: `repr(C)`, and the first field of `verbs_device` is the `ibv_device`.
unsafe impl Object for ListedDevice {
    type C = ibv_device;
}

// SAFETY: an entry never changes once it is in the list.
unsafe impl Send for ListedDevice {}
// SAFETY: as above.
unsafe impl Sync for ListedDevice {}

/// The device that was found last.
static FOUND: AtomicPtr<ListedDevice> = AtomicPtr::new(ptr::null_mut());

/// The table that marks devices as ours: vendor libraries compare its address to their own.
static OPS: [usize; 64] = [0; 64];

impl ListedDevice {
    /// Returns the devices that were found so far. A list that only grows needs no lock, which a
    /// child after `fork` might inherit locked.
    fn found() -> impl Iterator<Item = &'static Self> {
        let mut at = FOUND.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: null, or a leaked box that is never changed.
            let device: &'static Self = unsafe { at.as_ref() }?;
            at = device.next;
            Some(device)
        })
    }

    /// Returns the entry of a device, which it makes if there is none.
    fn of(named: NamedDevice) -> &'static Self {
        let is_same = |other: &&Self| {
            let (one, two) = (&other.named, &named);
            let interface = |it: &NamedDevice| (it.info.interface.index, it.node_guid());
            (&one.name, &one.dev_name, &one.info.interface.name, interface(one))
                == (&two.name, &two.dev_name, &two.info.interface.name, interface(two))
        };
        if let Some(known) = Self::found().find(is_same) {
            return known;
        }
        let c = Shared::new(describe(&named));
        let new = Box::leak(Box::new(Self { c, named, next: ptr::null() }));
        let mut before = FOUND.load(Ordering::Acquire);
        loop {
            new.next = before;
            // Two threads may add the same device: two entries of one device do no harm.
            match FOUND.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return new,
                Err(now) => before = now,
            }
        }
    }

    /// Returns the device of an interface.
    ///
    /// # Errors
    /// [`Error`] if the environment names no device for it, or interfaces cannot be listed.
    pub(crate) fn of_interface(interface: &str) -> Result<&'static Self, Error> {
        let is_it = |device: &&Self| device.interface() == interface;
        if let Some(known) = Self::found().find(is_it) {
            return Ok(known);
        }
        let names = environment::var(environment::DEVICES);
        let names: DeviceNames = names.and_then(|text| text.parse().ok()).unwrap_or_default();
        let listed = NamedDevice::list(&names)?.into_iter().map(Self::of).find(is_it);
        listed.ok_or_else(|| Error::System(std::io::ErrorKind::NotFound.into()))
    }

    /// Returns the name of the interface.
    pub(crate) fn interface(&self) -> &str {
        &self.named.info.interface.name
    }

    /// Returns the index of the interface.
    pub(crate) fn interface_index(&self) -> u32 {
        self.named.info.interface.index
    }

    /// Returns width and speed of the port, as the files of the device give them, too.
    pub(crate) fn rate(&self) -> PortRate {
        self.named.info.rate()
    }

    /// Returns the MAC address of the interface.
    pub(crate) fn mac(&self) -> [u8; 6] {
        self.named.info.interface.mac.unwrap_or_default()
    }

    /// Returns the name of the device.
    pub(crate) fn name(&self) -> &str {
        &self.named.name
    }

    /// Returns the node GUID as it lies in memory: in network byte order.
    pub(crate) fn node_guid(&self) -> u64 {
        u64::from_ne_bytes(self.named.node_guid())
    }

    /// Returns the pointer that programs have.
    pub(crate) fn as_c(&self) -> *mut ibv_device {
        ptr::from_ref(self).cast_mut().cast()
    }
}

fn describe(named: &NamedDevice) -> verbs_device {
    let dev_path = format!("/sys/class/infiniband_verbs/{}", named.dev_name);
    let ibdev_path = format!("/sys/class/infiniband/{}", named.name);
    let device = ibv_device {
        _ops: [ptr::null(); 2],
        node_type: IBV_NODE_CA,
        transport_type: IBV_TRANSPORT_IB,
        name: c_text(&named.name),
        dev_name: c_text(&named.dev_name),
        dev_path: c_text(&dev_path),
        ibdev_path: c_text(&ibdev_path),
    };
    verbs_device { device, ops: (&raw const OPS).cast(), reserved: [0; 8] }
}

/// Returns text with zeros behind it. What does not fit is cut off.
pub(crate) fn c_text<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    bytes
}

/// `ibv_get_device_list`
pub(crate) extern "C" fn get(count: Option<&mut c_int>) -> *mut *mut ibv_device {
    let _uncancellable = Uncancellable::begin();
    panic::end_process_on_panic();
    message::start_log();
    let devices = match list() {
        Ok(devices) => devices,
        Err(errno) => {
            if let Some(count) = count {
                *count = 0;
            }
            return errno::null(errno);
        }
    };
    // SAFETY: plain memory, of which the last word stays zero: the end of the list.
    let array = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
    let array: *mut *mut ibv_device = array.cast();
    if array.is_null() {
        return errno::null(ENOMEM);
    }
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: the array has one element more.
        unsafe { array.add(index).write(device.as_c()) };
    }
    if let Some(count) = count {
        *count = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
    }
    array
}

/// Returns the devices of this network namespace, or an `errno` value.
fn list() -> Result<Vec<&'static ListedDevice>, c_int> {
    let names = match environment::var(environment::DEVICES) {
        Some(text) => text.parse().map_err(|error| {
            message::say_once(&format_args!("{}: {error}", environment::DEVICES));
            EINVAL
        })?,
        None => DeviceNames::default(),
    };
    let found = NamedDevice::list(&names).map_err(|error| {
        message::say_once(&error);
        errno::of(&error)
    })?;
    if found.is_empty() {
        message::say_once(&match names.is_every_interface() {
            true => "no RDMA device: this network namespace has no Ethernet interface".to_owned(),
            false => format!(
                "no RDMA device: there is no interface of {}={names} in this network namespace",
                environment::DEVICES
            ),
        });
    }
    Ok(found.into_iter().map(ListedDevice::of).collect())
}

/// `ibv_free_device_list`
pub(crate) unsafe extern "C" fn free(list: *mut *mut ibv_device) {
    let _uncancellable = Uncancellable::begin();
    // SAFETY: the program passes an array of `get`, or null.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name`
pub(crate) extern "C" fn name(device: &ListedDevice) -> *const c_char {
    // SAFETY: the text is in the structure that the program has a pointer to.
    unsafe { (&raw const (*device.as_c()).name).cast() }
}

/// `ibv_get_device_guid`
pub(crate) extern "C" fn guid(device: &ListedDevice) -> u64 {
    device.node_guid()
}

/// `ibv_get_device_index`: the kernel has no number for the device.
pub(crate) extern "C" fn index(_device: &ListedDevice) -> c_int {
    -1
}

/// `ibv_get_sysfs_path`
pub(crate) extern "C" fn sysfs_path() -> *const c_char {
    // SAFETY: as any use of the environment in C, this needs a program that does not change it in
    // another thread meanwhile.
    let chosen = unsafe { libc::getenv(c"SYSFS_PATH".as_ptr()) };
    if chosen.is_null() { c"/sys".as_ptr() } else { chosen.cast_const() }
}

/// `ibv_read_sysfs_file`: the file, or where there is none what it would say about a device of ours.
/// Returns the number of bytes without the line end.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    let _uncancellable = Uncancellable::begin();
    if folder.is_null() || file.is_null() || buffer.is_null() || size == 0 {
        errno::set(EINVAL);
        return -1;
    }
    // SAFETY: the program passes two texts.
    let [folder, file] = [folder, file].map(|text| unsafe { CStr::from_ptr(text) });
    let (Ok(folder), Ok(file)) = (folder.to_str(), file.to_str()) else {
        errno::set(EINVAL);
        return -1;
    };
    let content = std::fs::read(format!("{folder}/{file}")).or_else(|error| {
        let ours = ListedDevice::found().find(|device| {
            folder.strip_suffix(&device.named.name) == Some("/sys/class/infiniband/")
        });
        ours.and_then(|device| device.attribute(file)).map(String::into_bytes).ok_or(error)
    });
    let content = match content {
        Ok(content) => content,
        Err(error) => {
            errno::set(error.raw_os_error().unwrap_or(libc::EIO));
            return -1;
        }
    };
    let text = content.strip_suffix(b"\n").unwrap_or(&content);
    let len = text.len().min(size - 1);
    // SAFETY: the buffer has `size` bytes, more than `len`.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), len);
        buffer.add(len).write(0);
    }
    c_int::try_from(len).unwrap_or(c_int::MAX)
}

impl ListedDevice {
    /// Returns the content of a file of the device in `/sys/class/infiniband`.
    fn attribute(&self, file: &str) -> Option<String> {
        match file {
            "node_type" => Some("1: CA".to_owned()),
            "fw_ver" => Some(FW_VER.to_owned()),
            "hca_type" | "board_id" => Some("roce".to_owned()),
            "node_desc" => Some(self.named.name.clone()),
            "node_guid" | "sys_image_guid" => {
                let quads = self.named.node_guid();
                let quad = |n: usize| format!("{:02x}{:02x}", quads[2 * n], quads[2 * n + 1]);
                Some([0, 1, 2, 3].map(quad).join(":"))
            }
            _ => None,
        }
    }
}

/// The version of the firmware, of which there is none: that of this library.
pub(crate) const FW_VER: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_too_long_is_cut_off_and_still_ends_with_a_zero() {
        assert_eq!(c_text::<4>("abcdef"), [97, 98, 99, 0]);
        assert_eq!(c_text::<4>("a"), [97, 0, 0, 0]);
    }
}
