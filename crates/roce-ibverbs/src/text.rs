//! Names of values, in the words of libibverbs.

use std::ffi::{CStr, c_char, c_int};

/// Returns the text with this number.
fn find(texts: &[&'static CStr], first: c_int, value: c_int) -> *const c_char {
    let index = value.checked_sub(first).and_then(|index| usize::try_from(index).ok());
    index.and_then(|index| texts.get(index)).map_or(c"unknown".as_ptr(), |text| text.as_ptr())
}

/// `ibv_node_type_str`
pub(crate) extern "C" fn node_type(value: c_int) -> *const c_char {
    const TEXTS: [&CStr; 7] = [
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    find(&TEXTS, 1, value)
}

/// `ibv_port_state_str`
pub(crate) extern "C" fn port_state(value: c_int) -> *const c_char {
    const TEXTS: [&CStr; 6] =
        [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];
    find(&TEXTS, 0, value)
}

/// `ibv_event_type_str`
pub(crate) extern "C" fn event_type(value: c_int) -> *const c_char {
    const TEXTS: [&CStr; 21] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
        c"Device link speed change",
    ];
    find(&TEXTS, 0, value)
}

/// `ibv_wc_status_str`
pub(crate) extern "C" fn wc_status(value: c_int) -> *const c_char {
    const TEXTS: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    find(&TEXTS, 0, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_a_name_is_unknown() {
        // SAFETY: texts that live as long as the program.
        let text = |text| unsafe { CStr::from_ptr(text) };
        for value in [c_int::MIN, -1, 24, c_int::MAX] {
            assert_eq!(text(wc_status(value)), c"unknown");
        }
        assert_eq!(text(node_type(0)), c"unknown");
        assert_eq!(text(node_type(1)), c"InfiniBand channel adapter");
        assert_eq!(text(wc_status(12)), c"transport retry counter exceeded");
    }
}
