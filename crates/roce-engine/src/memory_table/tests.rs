use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::plain_region::PlainRegion;

type Table = MemoryTable<Rc<PlainRegion>>;

/// Registers `region` under a key that no region has had.
fn insert(table: &mut Table, region: PlainRegion, how: Registration) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    table.insert(Rc::new(region), how, || NEXT.fetch_add(1, Ordering::Relaxed))
}

const PD: PdHandle = PdHandle(1);
const BY: Accessor = Accessor { pd: PD, qpn: Qpn::GSI };
const OTHER: Accessor = Accessor { pd: PdHandle(2), qpn: Qpn::GSI };

fn register(table: &mut Table, len: usize) -> u32 {
    let region = PlainRegion::new(len);
    let access = AccessFlags::all();
    insert(
        table,
        region,
        Registration { pd: PD, access, iova: 0, invalidatable: true, on_demand: false },
    )
}

#[test]
fn a_removed_key_opens_no_region_although_its_slot_is_used_again() {
    let mut table = Table::default();
    let keys = [64, 128].map(|len| register(&mut table, len));
    let opens =
        |table: &Table, key, len| table.check(BY, key, 0, len, Access::RemoteWrite).map(|_| ());
    assert_eq!(opens(&table, keys[0], 64), Ok(()));
    table.remove(keys[0]);
    assert_eq!(opens(&table, keys[0], 1), Err(MemoryFault::UnknownKey));
    let new = register(&mut table, 32);
    assert_eq!(opens(&table, keys[0], 1), Err(MemoryFault::UnknownKey));
    assert_eq!(opens(&table, new, 32), Ok(()));
    assert_eq!(opens(&table, new, 33), Err(MemoryFault::OutOfBounds));
    assert_eq!(opens(&table, keys[1], 128), Ok(()));
    table.invalidate(BY, new).unwrap();
    assert_eq!(opens(&table, new, 1), Err(MemoryFault::UnknownKey));
}

#[test]
fn a_replaced_region_has_its_key_and_nothing_else_of_before() {
    let mut table = Table::default();
    let key = register(&mut table, 64);
    let region = PlainRegion::new(32);
    region.write(0, b"new").unwrap();
    let access = AccessFlags::LOCAL_WRITE;
    let how =
        Registration { pd: OTHER.pd, access, iova: 0x1000, invalidatable: false, on_demand: false };
    table.replace(key, Rc::new(region), how);
    let check = |by, address, len, access| table.check(by, key, address, len, access);
    let refused = |by, address, access| check(by, address, 1, access).map(|_| ()).unwrap_err();
    assert_eq!(refused(BY, 0x1000, Access::LocalRead), MemoryFault::WrongDomain);
    assert_eq!(refused(OTHER, 0, Access::LocalRead), MemoryFault::OutOfBounds);
    assert_eq!(refused(OTHER, 0x1000, Access::RemoteRead), MemoryFault::NoPermission);
    assert!(check(OTHER, 0x1000, 33, Access::LocalRead).is_err());
    let grant = check(OTHER, 0x1000, 32, Access::LocalRead).unwrap();
    let mut seen = [0; 3];
    table.read(grant, 0, &mut seen).unwrap();
    assert_eq!(&seen, b"new");
}

#[test]
fn a_null_region_takes_bytes_gives_zeros_and_is_closed_to_peers() {
    let mut table = Table::default();
    let key = table.insert_null(PD, || 1);
    for access in [Access::LocalRead, Access::LocalWrite] {
        let grant = table.check(BY, key, u64::MAX, 1 << 31, access).unwrap();
        table.write(grant, 1 << 30, b"lost").unwrap();
        let mut seen = [1; 4];
        table.read(grant, 1 << 30, &mut seen).unwrap();
        assert_eq!(seen, [0; 4]);
        let mut seen = [1; 256];
        assert_eq!(table.read_summed(grant, 0, &mut seen), Ok(None));
        assert_eq!(seen, [0; 256]);
        let refused = table.check(OTHER, key, 0, 1, access).map(|_| ());
        assert_eq!(refused, Err(MemoryFault::WrongDomain));
    }
    for access in [Access::RemoteRead, Access::RemoteWrite, Access::RemoteAtomic] {
        let refused = table.check(BY, key, 0, 8, access).map(|_| ());
        assert_eq!(refused, Err(MemoryFault::UnknownKey), "{access:?}");
    }
    table.remove_null(key);
    assert!(table.check(BY, key, 0, 1, Access::LocalRead).is_err());
}

#[test]
fn an_atomic_is_refused_where_an_aligned_address_names_memory_that_is_not_aligned() {
    let mut table = Table::default();
    let region = PlainRegion::new(64);
    let access = AccessFlags::all();
    let how = Registration { pd: PD, access, iova: 0x1001, invalidatable: false, on_demand: false };
    let key = insert(&mut table, region, how);
    let check = |table: &Table, address, access| table.check(BY, key, address, 8, access);
    let refused = check(&table, 0x1008, Access::RemoteAtomic).map(|_| ());
    assert_eq!(refused, Err(MemoryFault::Misaligned));
    let refused = check(&table, 0x1040, Access::RemoteAtomic).map(|_| ());
    assert_eq!(refused, Err(MemoryFault::OutOfBounds), "the range is checked first");
    assert!(check(&table, 0x1008, Access::RemoteWrite).is_ok(), "bytes need no alignment");
    let grant = check(&table, 0x1009, Access::RemoteAtomic).unwrap();
    assert_eq!(table.atomic(grant, AtomicChange::Add(3)), Ok(0));
    assert_eq!(table.atomic(grant, AtomicChange::Add(3)), Ok(3));
}

#[test]
fn a_key_opens_its_region_to_its_own_domain_alone_and_for_what_is_allowed_alone() {
    let mut table = Table::default();
    let register = |table: &mut Table, access| {
        let region = PlainRegion::new(64);
        let how =
            Registration { pd: PD, access, iova: 0x1000, invalidatable: false, on_demand: false };
        insert(table, region, how)
    };
    for access in [
        Access::LocalRead,
        Access::LocalWrite,
        Access::RemoteRead,
        Access::RemoteWrite,
        Access::RemoteAtomic,
    ] {
        let key = register(&mut table, access.required_flags());
        let opens = |by, address, len| table.check(by, key, address, len, access).map(|_| ());
        assert_eq!(opens(BY, 0x1000, 64), Ok(()), "{access:?}");
        assert_eq!(opens(OTHER, 0x1000, 1), Err(MemoryFault::WrongDomain));
        for (address, len) in [(0xfff, 1), (0x1000, 65), (0x1040, 1), (u64::MAX, 2), (0, 8)] {
            assert_eq!(opens(BY, address, len), Err(MemoryFault::OutOfBounds), "{address:x}");
        }
        let rest = register(&mut table, AccessFlags::all() - access.required_flags());
        let refused = table.check(BY, rest, 0x1000, 1, access).map(|_| ());
        // A local read needs no right.
        let expected = match access {
            Access::LocalRead => Ok(()),
            _ => Err(MemoryFault::NoPermission),
        };
        assert_eq!(refused, expected, "{access:?}");
        assert_eq!(table.invalidate(BY, key), Err(MemoryFault::NotInvalidatable));
        assert_eq!(table.invalidate(OTHER, key), Err(MemoryFault::WrongDomain));
    }
}

#[test]
fn no_sum_of_address_and_length_wraps() {
    let mut table = Table::default();
    // The last 64 addresses but one of all, and a whole address space on demand.
    let last = u64::MAX - 64;
    let how = |iova| {
        let access = AccessFlags::all();
        Registration { pd: PD, access, iova, invalidatable: false, on_demand: false }
    };
    let key = insert(&mut table, PlainRegion::new(64), how(last));
    let opens = |table: &Table, key, address, len| {
        table.check(BY, key, address, len, Access::RemoteWrite).is_ok()
    };
    assert!(opens(&table, key, last, 64) && opens(&table, key, last + 63, 1));
    for (address, len) in [
        (last, 65),
        (last, 66),
        (last + 1, 64),
        (last + 63, 2),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (last + 8, u64::MAX - 8),
        (last, u64::MAX),
        (0, 1),
        (last - 1, 2),
    ] {
        assert!(!opens(&table, key, address, len), "{len} bytes at {address:#x}");
    }
    // A window of it, and windows that would wrap.
    let access = AccessFlags::REMOTE_WRITE;
    let window = |addr, len| WindowBinding { window: 0, tag: 0, lkey: key, addr, len, access };
    let range = |binding: WindowBinding| {
        let found = table.find(key).map(|(_, entry)| entry);
        Table::bindable_range(found, BY, &binding).map(|_| ())
    };
    assert_eq!(range(window(last + 8, 8)), Ok(()));
    for (addr, len) in
        [(last + 8, 57), (last + 8, u64::MAX), (u64::MAX, 2), (0, 64), (last - 8, 16)]
    {
        assert_eq!(range(window(addr, len)), Err(MemoryFault::OutOfBounds), "{len} at {addr:#x}");
    }
}
