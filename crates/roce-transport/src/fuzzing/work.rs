//! Work as a script wants it, over regions that are there and others.

use super::memory::Region;
use crate::{RecvWr, RemoteAddr, SendOperation, SendWr, SgList, Sge};
use roce_fuzz_support::Script;
use roce_wire::FlushExtent;

/// The key of a region, or any.
pub(super) fn key(script: &mut Script<'_>, regions: &[Region]) -> u32 {
    let code = script.byte();
    match regions.get(usize::from(code) % (regions.len() + 1)) {
        Some(region) => region.key,
        None => script.number(),
    }
}

/// An address in the region of `key`, near its end, or anywhere.
pub(super) fn address(script: &mut Script<'_>, regions: &[Region], key: u32) -> u64 {
    let Some(region) = regions.iter().find(|it| it.key == key) else { return script.number() };
    match script.byte() % 8 {
        0 | 1 => region.addr,
        2 | 3 => region.addr.wrapping_add(8 * u64::from(script.byte())),
        4 => region.addr.wrapping_add(script.number::<u16>().into()),
        5 | 6 => {
            let end = region.addr.wrapping_add(region.len);
            end.wrapping_sub(script.byte().into())
        }
        _ => script.number(),
    }
}

fn len(script: &mut Script<'_>) -> u32 {
    match script.byte() % 8 {
        0 | 1 => script.byte().into(),
        2 | 3 => script.number::<u16>().into(),
        4 => 8,
        5 => 0,
        6 => 1 << 31,
        _ => script.number(),
    }
}

fn scatter(script: &mut Script<'_>, regions: &[Region]) -> SgList {
    let pieces = match script.byte() % 8 {
        0..=4 => 1,
        5 => 2,
        6 => 0,
        _ => usize::from(script.byte() % 40),
    };
    let piece = |_| {
        let key = key(script, regions);
        Sge { lkey: key, addr: address(script, regions, key), len: len(script) }
    };
    (0..pieces).map(piece).collect()
}

/// Any receive.
pub(super) fn receive(script: &mut Script<'_>, regions: &[Region], wr_id: u64) -> RecvWr {
    RecvWr { wr_id, sg_list: scatter(script, regions) }
}

/// Any request.
pub(super) fn request(script: &mut Script<'_>, regions: &[Region], wr_id: u64) -> SendWr {
    let code = script.byte();
    let remote = RemoteAddr { addr: script.number::<u16>().into(), rkey: script.byte().into() };
    let immediate = (code & 0x10 != 0).then_some([code; 4]);
    let invalidate = (code & 0x20 != 0).then(|| key(script, regions));
    let (compare, swap) = (u64::from(code), 7);
    let operation = match code % 8 {
        5 if code & 0xc0 == 0xc0 => SendOperation::AtomicWrite { remote, value: swap },
        6 if code & 0xc0 == 0xc0 => SendOperation::Flush {
            remote,
            len: len(script),
            placement: script.byte(),
            extent: if code & 0x20 == 0 { FlushExtent::Range } else { FlushExtent::Region },
        },
        0 | 1 => SendOperation::Send { immediate, invalidate },
        2 => SendOperation::Write { remote, immediate },
        3 | 4 => SendOperation::Read { remote },
        5 => SendOperation::CompareSwap { remote, compare, swap },
        6 => SendOperation::FetchAdd { remote, add: compare },
        _ => SendOperation::LocalInvalidate { key: key(script, regions) },
    };
    let flags = script.byte();
    let mut work = if flags & 0xe0 == 0xe0 {
        let inline = script.byte();
        SendWr::inline(wr_id, operation, vec![flags; inline.into()])
    } else if operation.has_empty_response() && flags & 0x80 == 0 {
        // With local bytes it is refused at once.
        SendWr::new(wr_id, operation, [])
    } else if operation.is_atomic() && flags & 0x80 == 0 {
        // An atomic of any other length than 8 is refused at once.
        let key = key(script, regions);
        let address = address(script, regions, key);
        SendWr::new(wr_id, operation, [Sge { lkey: key, addr: address, len: 8 }])
    } else {
        SendWr::new(wr_id, operation, scatter(script, regions))
    };
    work.signaled = flags & 1 == 0;
    work.solicited = flags & 2 != 0;
    work.fence = flags & 4 != 0;
    work
}
