//! Functions by what they do, in words that need no source code.

use super::{Frame, Place, Stack};

/// What functions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// In a table.
    pub name: &'static str,
    /// In a graph.
    pub colour: &'static str,
}

/// What a stack was doing: the group of its innermost function that belongs to one. What a
/// function calls that belongs to none (a copy, a lock) counts as its own work.
///
/// The C library's function that moves memory leaves no trace of its caller; only the raw programs
/// copy payload with it.
pub fn group(stack: &Stack) -> &'static Group {
    match stack.frames.iter().find_map(group_of) {
        Some(found) if *found == MOVES && stack.frames.iter().any(is_raw) => &MEMORY,
        Some(found) => found,
        None => &OTHER,
    }
}

fn is_raw(frame: &Frame) -> bool {
    frame.file.as_ref().is_some_and(|file| file.starts_with("bench/src/raw/"))
}

/// The group of a function that belongs to one whatever its caller.
pub(super) fn group_of(frame: &Frame) -> Option<&'static Group> {
    let (text, rules) = match (frame.place, &frame.file) {
        // The kernel's compiler marks what it has cut out of functions: `name.isra.0`.
        (Place::Kernel, _) => (frame.name.split('.').next()?, KERNEL),
        (Place::Library, _) => (frame.name.as_str(), LIBRARIES),
        (Place::Program, Some(file)) => (file.as_str(), FILES),
        (Place::Program, None) => return None,
    };
    let fits = |pattern: &&str| match (pattern.strip_suffix('*'), pattern.split_once(' ')) {
        (Some(start), _) => text.starts_with(start),
        // One function of a file.
        (None, Some((file, name))) => text == file && frame.name == name,
        (None, None) => text == *pattern,
    };
    rules.iter().find(|(_, patterns)| patterns.iter().any(&fits)).map(|(group, _)| *group)
}

/// All groups, in the order of tables: the data's way from one program to the other, and what is
/// around it.
pub(super) const ALL: &[&Group] = &[
    &PROGRAM,
    &SUMS,
    &COLLECTIVE,
    &DRIVER,
    &ENGINE,
    &MOVES,
    &HEADERS,
    &ICRC,
    &MEMORY,
    &FETCH,
    &DEVICE,
    &CALLS,
    &COPY_IN,
    &SENDING,
    &PATH,
    &RECEIVING,
    &COPY_RING,
    &COPY_OUT,
    &WAITING,
    &INTERRUPTS,
    &OTHER,
];

const PROGRAM: Group = Group { name: "program", colour: "#d9d9d9" };
const SUMS: Group = Group { name: "sums", colour: "#a6d854" };
const COLLECTIVE: Group = Group { name: "ring of ranks", colour: "#c7e9b4" };
const DRIVER: Group = Group { name: "driver: queues, locks, paths", colour: "#b3cde3" };
const ENGINE: Group = Group { name: "protocol engine", colour: "#6baed6" };
const HEADERS: Group = Group { name: "headers, read and written", colour: "#9ecae1" };
const ICRC: Group = Group { name: "ICRC", colour: "#fdae61" };
const MEMORY: Group = Group { name: "payload copied from or to memory", colour: "#f46d43" };
const MOVES: Group = Group { name: "structures moved (memmove)", colour: "#fcbba1" };
const FETCH: Group = Group { name: "fetching what arrived", colour: "#fee08b" };
const DEVICE: Group = Group { name: "packet device", colour: "#cab2d6" };
const CALLS: Group = Group { name: "system calls, in and out", colour: "#bdbdbd" };
const COPY_IN: Group = Group { name: "kernel: copy from the sender", colour: "#e31a1c" };
const SENDING: Group = Group { name: "kernel: sending socket", colour: "#fbb4ae" };
const PATH: Group = Group { name: "kernel: veth, IP, UDP or TCP, freeing", colour: "#decbe4" };
const RECEIVING: Group = Group { name: "kernel: receiving socket", colour: "#fddaec" };
const COPY_RING: Group = Group { name: "kernel: copy into the peer's ring", colour: "#ff7f7f" };
const COPY_OUT: Group = Group { name: "kernel: copy to the reader", colour: "#ff9f6f" };
const WAITING: Group = Group { name: "waiting: ring, clock, yield", colour: "#ccebc5" };
const INTERRUPTS: Group = Group { name: "interrupts, scheduling", colour: "#e5d8bd" };
const OTHER: Group = Group { name: "other", colour: "#f2f2f2" };

type Rules = &'static [(&'static Group, &'static [&'static str])];

/// By source file.
const FILES: Rules = &[
    (
        &ICRC,
        &[
            "crates/roce-wire/src/icrc.rs",
            "crates/roce-wire/src/payload_crc.rs",
            "crc32fast-*",
            "bench/src/raw/crc_tables.rs",
        ],
    ),
    (&HEADERS, &["crates/roce-wire/*", "etherparse-*", "bench/src/raw/frame.rs"]),
    // Where a payload is copied and summed in one pass, the sum counts as copying.
    (&MEMORY, &["crates/roce-verbs/src/region*"]),
    (&FETCH, &["crates/roce-io/src/sys/prefetch.rs"]),
    (
        &WAITING,
        &[
            "crates/roce-io/src/sys/ring.rs",
            "crates/roce-engine/src/policy/wait.rs",
            "crates/roce-engine/src/policy/yield_timing.rs",
            "crates/roce-verbs/src/thread_wait.rs",
            "crates/roce-verbs/src/driver/blocking.rs",
            "bench/src/raw/sys/ring.rs",
            // Their loops; what they do with a frame is elsewhere.
            "bench/src/raw/pingpong.rs",
            "bench/src/raw/gso/receiver.rs receive",
        ],
    ),
    (&ENGINE, &["crates/roce-transport/*"]),
    (&DRIVER, &["crates/roce-engine/*", "crates/roce-verbs/*"]),
    (&DEVICE, &["crates/roce-io/*", "bench/src/raw/sys/*", "bench/src/raw/port.rs"]),
    (&SUMS, &["crates/roce-ring/src/kernel*"]),
    (&COLLECTIVE, &["crates/roce-ring/*", "crates/roce-collectives/*"]),
    (&PROGRAM, &["tools/*", "bench/*"]),
];

/// By function.
const LIBRARIES: Rules = &[
    (&MOVES, &["__memmove_*", "__memcpy_*", "__memset_*"]),
    (&WAITING, &["__vdso_clock_gettime*", "clock_gettime*", "__sched_yield", "sched_yield"]),
    (&CALLS, &["__send*", "send*", "__libc_send*", "__recv*", "__write*", "__read*", "syscall"]),
];

/// By function, as the kernel names them.
const KERNEL: Rules = &[
    (&COPY_RING, &["skb_copy_bits", "__skb_copy_bits"]),
    (
        &COPY_IN,
        &[
            "_copy_from_iter",
            "copy_page_from_iter*",
            "__copy_from_iter*",
            "skb_copy_datagram_from_iter*",
            "skb_do_copy_data_nocache",
        ],
    ),
    (
        &COPY_OUT,
        &["_copy_to_iter", "copy_page_to_iter*", "__skb_datagram_iter", "skb_copy_datagram_iter"],
    ),
    (
        &RECEIVING,
        &[
            "tpacket_*",
            "packet_rcv*",
            "__packet_*",
            "packet_lookup_*",
            "run_filter",
            "tcp_recvmsg*",
        ],
    ),
    (
        &SENDING,
        &["packet_sendmsg*", "packet_snd*", "packet_parse_*", "sock_alloc_send_*", "tcp_sendmsg*"],
    ),
    (
        &PATH,
        &[
            "__dev_direct_xmit",
            "dev_direct_xmit",
            "packet_xmit",
            "veth_*",
            "__netif_*",
            "netif_*",
            "__dev_queue_xmit",
            "dev_queue_*",
            "dev_hard_start_xmit",
            "process_backlog",
            "net_rx_action",
            "__napi_poll",
            "ip_*",
            "__ip_*",
            "udp_*",
            "__udp_*",
            "tcp_*",
            "__tcp_*",
            "br_*",
            "consume_skb",
            "kfree_skb*",
            "sk_skb_*",
            "skb_release_*",
            "enqueue_to_backlog",
            "validate_xmit_*",
            "skb_defer_*",
            "__kfree_skb",
        ],
    ),
    (&WAITING, &["__x64_sys_sched_yield", "do_sched_yield", "ep_poll", "do_sys_poll", "do_select"]),
    (
        &INTERRUPTS,
        &[
            "asm_sysvec_*",
            "sysvec_*",
            "asm_exc_*",
            "exc_page_fault",
            "irqentry_*",
            "schedule_timeout",
            "futex_*",
            "do_futex",
            "__x64_sys_futex",
            "asm_common_interrupt",
        ],
    ),
    (
        &CALLS,
        &[
            "__x64_sys_*",
            "__sys_*",
            "___sys_*",
            "____sys_*",
            "do_syscall_64",
            "entry_SYSCALL_*",
            "import_iovec",
            "__import_iovec",
            "syscall_*",
            "fdget",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(names: &[&str]) -> Stack {
        let frame =
            |name: &&str| Frame { name: (*name).to_owned(), file: None, place: Place::Kernel };
        Stack { frames: names.iter().map(frame).collect(), count: 1 }
    }

    #[test]
    fn what_a_function_calls_counts_as_its_own_work() {
        let copy = kernel(&["__pi_memcpy", "skb_copy_bits", "tpacket_rcv", "do_syscall_64"]);
        assert_eq!(group(&copy), &COPY_RING);
        let lock = kernel(&["_raw_spin_lock", "tpacket_rcv", "do_syscall_64"]);
        assert_eq!(group(&lock), &RECEIVING);
        assert_eq!(group(&kernel(&["process_backlog.part.0"])), &PATH);
        assert_eq!(group(&kernel(&["a_function_of_next_year"])), &OTHER);
    }

    #[test]
    fn our_functions_are_known_by_their_files() {
        let frame = |file: &str| Frame {
            name: "write".to_owned(),
            file: Some(file.to_owned()),
            place: Place::Program,
        };
        let of = |file| group_of(&frame(file)).map(|group| group.name);
        assert_eq!(of("crates/roce-wire/src/icrc.rs"), Some("ICRC"));
        assert_eq!(of("crates/roce-wire/src/seal.rs"), Some(HEADERS.name));
        assert_eq!(of("crates/roce-verbs/src/region.rs"), Some(MEMORY.name));
        assert_eq!(of("crates/roce-verbs/src/region/copy_crc.rs"), Some(MEMORY.name));
        assert_eq!(of("bench/src/raw/gso/receiver.rs"), Some(PROGRAM.name));
        let waits = Frame { name: "receive".to_owned(), ..frame("bench/src/raw/gso/receiver.rs") };
        assert_eq!(group_of(&waits), Some(&WAITING));
        assert_eq!(of("elsewhere-1.0/src/lib.rs"), None);
    }

    #[test]
    fn memory_is_moved_for_the_payload_in_the_raw_programs_alone() {
        let library = Frame {
            name: "__memmove_avx_unaligned_erms".to_owned(),
            file: None,
            place: Place::Library,
        };
        let under = |file: &str| {
            let caller =
                Frame { file: Some(file.to_owned()), place: Place::Program, ..library.clone() };
            Stack { frames: vec![library.clone(), caller], count: 1 }
        };
        assert_eq!(group(&under("bench/src/raw/gso/mod.rs")), &MEMORY);
        assert_eq!(group(&under("crates/roce-transport/src/endpoint.rs")), &MOVES);
    }

    #[test]
    fn every_rule_leads_into_the_table() {
        let rules = [FILES, LIBRARIES, KERNEL].into_iter().flatten();
        assert!(rules.map(|(group, _)| group).all(|group| ALL.contains(group)));
    }

    #[test]
    fn every_file_that_a_rule_names_exists() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let patterns = FILES.iter().flat_map(|(_, patterns)| *patterns);
        let files = patterns.map(|it| it.split_once(' ').map_or(*it, |(file, _)| file));
        for file in files.filter(|it| it.ends_with(".rs")) {
            assert!(std::path::Path::new(root).join(file).is_file(), "{file}");
        }
    }
}
