//! Regions and windows of a device with several engines: each has a table, and packets to one of them end
//! what packets to the others may use.

use std::rc::Rc;

use roce_engine::{MemoryTable, PlainRegion, Region, Registration, WindowType};
use roce_transport::{
    Access, AccessFlags, Accessor, AtomicChange, Memory, MemoryFault, PdHandle, WindowBinding,
};
use roce_wire::Qpn;

type Table = MemoryTable<Rc<PlainRegion>>;

const PD: PdHandle = PdHandle(1);

fn by(qpn: u32) -> Accessor {
    Accessor { pd: PD, qpn: Qpn::new(qpn).unwrap() }
}

/// Tables of two engines with one region of 64 bytes, and its key.
fn tables() -> ([Table; 2], u32, Rc<PlainRegion>) {
    let mut first = Table::default();
    first.share_windows();
    let mut second = first.clone();
    let access = AccessFlags::all();
    let how = Registration { pd: PD, access, iova: 0, invalidatable: true, on_demand: false };
    let region = Rc::new(PlainRegion::new(64));
    let key = first.insert(Rc::clone(&region), how, || 0x77);
    second.insert_entry(key, first.entry(key).unwrap());
    ([first, second], key, region)
}

/// Gives the key of the region other memory in the first table, as its owner does before it comes to the
/// others.
fn replace(first: &mut Table, key: u32, pd: PdHandle, len: usize) -> Rc<PlainRegion> {
    let region = Rc::new(PlainRegion::new(len));
    let access = AccessFlags::all();
    let how = Registration { pd, access, iova: 0, invalidatable: true, on_demand: false };
    first.replace(key, Rc::clone(&region), how);
    region
}

fn bind(table: &mut Table, window: u32, tag: u8, lkey: u32) -> WindowBinding {
    let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let to = WindowBinding { window, tag, lkey, addr: 8, len: 16, access };
    table.bind_window(by(1), &to).unwrap();
    to
}

//= test mw-access
#[test]
fn a_window_of_type_1_that_one_engine_has_bound_opens_its_bytes_in_the_others() {
    let ([mut first, mut second], key, region) = tables();
    let window = second.alloc_window(PD, WindowType::Type1, || 0x1234_0000).unwrap() >> 8;
    let to = bind(&mut first, window, 1, key);
    let grant = second.check(by(2), to.rkey(), 8, 16, Access::RemoteWrite).unwrap();
    second.write(grant, 15, b"x").unwrap();
    let mut seen = [0; 2];
    region.read(22, &mut seen).unwrap();
    assert_eq!(&seen, b"\0x");
    assert_eq!([first.windows_bound_to(key), second.windows_bound_to(key)], [1, 1]);
    assert_eq!(second.window_state(window), Some((to.rkey(), true)));
    second.free_window(window);
    assert!(first.check(by(1), to.rkey(), 8, 1, Access::RemoteWrite).is_err());
    assert_eq!(first.windows_bound_to(key), 0);
}

#[test]
fn once_a_binding_has_ended_no_engine_accesses_memory_by_a_grant_of_before() {
    let ([mut first, mut second], key, region) = tables();
    let window = first.alloc_window(PD, WindowType::Type1, || 0x1234_0000).unwrap() >> 8;
    let to = bind(&mut first, window, 1, key);
    let grant = |access| second.check(by(2), to.rkey(), 8, 8, access).unwrap();
    let written = grant(Access::RemoteWrite);
    let [read, atomic] = [grant(Access::RemoteRead), grant(Access::RemoteAtomic)];
    // Under the same key: it is another binding nevertheless.
    bind(&mut first, window, 1, key);
    let gone = MemoryFault::UnknownKey;
    assert_eq!(second.write(written, 0, b"late"), Err(gone));
    assert_eq!(second.read(read, 0, &mut [0; 4]), Err(gone));
    assert_eq!(second.read_summed(read, 0, &mut [0; 4]), Err(gone));
    assert_eq!(second.atomic(atomic, AtomicChange::Add(1)), Err(gone));
    let mut seen = [0; 64];
    region.read(0, &mut seen).unwrap();
    assert_eq!(seen, [0; 64]);
}

#[test]
fn a_key_that_one_engine_has_invalidated_opens_nothing_in_the_others() {
    let ([mut first, mut second], key, region) = tables();
    let grant = second.check(by(2), key, 0, 4, Access::RemoteWrite).unwrap();
    second.write(grant, 0, b"soon").unwrap();
    first.invalidate(by(1), key).unwrap();
    assert_eq!(second.write(grant, 0, b"late"), Err(MemoryFault::UnknownKey));
    assert!(second.check(by(2), key, 0, 4, Access::RemoteWrite).is_err() && !second.is_valid(key));
    assert_eq!(second.invalidate(by(2), key), Err(MemoryFault::UnknownKey));
    let mut seen = [0; 4];
    region.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"soon");
}

//= test mw-region-in-use
#[test]
fn a_region_that_leaves_one_table_after_the_other_takes_its_windows_with_it() {
    let ([mut first, mut second], key, _) = tables();
    let number = |table: &mut Table, random| {
        table.alloc_window(PD, WindowType::Type1, || random).unwrap() >> 8
    };
    let windows = [number(&mut first, 0x1234_0000), number(&mut second, 0x4321_0000)];
    let to = bind(&mut second, windows[0], 1, key);
    assert_eq!(first.invalidate(by(1), key), Err(MemoryFault::NotInvalidatable));
    first.remove(key);
    assert!(second.check(by(2), to.rkey(), 8, 1, Access::RemoteWrite).is_err());
    // The second engine has not been reached yet.
    let late = bind(&mut second, windows[1], 1, key);
    second.remove(key);
    assert!(second.check(by(2), late.rkey(), 8, 1, Access::RemoteWrite).is_err());
    assert_eq!(second.window_state(windows[1]), Some((late.rkey(), false)));
}

#[test]
fn a_binding_to_the_registration_of_before_opens_nothing_of_the_new_one() {
    // Smaller, of another domain, or the same but for its bytes.
    for (pd, len) in [(PD, 8), (PdHandle(2), 64), (PD, 64)] {
        let ([mut first, mut second], key, before) = tables();
        let window = first.alloc_window(PD, WindowType::Type1, || 0x1234_0000).unwrap() >> 8;
        let after = replace(&mut first, key, pd, len);
        // The second engine has not been reached yet.
        let to = bind(&mut second, window, 1, key);
        let write = |table: &mut Table, bytes: &[u8]| {
            let grant = table.check(by(2), to.rkey(), 8, 4, Access::RemoteWrite)?;
            table.write(grant, 0, bytes)
        };
        assert!(write(&mut first, b"past").is_err(), "{pd:?} {len}");
        assert_eq!(write(&mut second, b"soon"), Ok(()));
        second.insert_entry(key, first.entry(key).unwrap());
        assert!(write(&mut first, b"late").is_err() && write(&mut second, b"late").is_err());
        assert_eq!(second.windows_bound_to(key), 0);
        let mut seen = vec![0; len];
        after.read(0, &mut seen).unwrap();
        assert_eq!(seen, vec![0; len]);
        let mut seen = [0; 4];
        before.read(8, &mut seen).unwrap();
        assert_eq!(&seen, b"soon");
    }
}

#[test]
fn a_binding_to_the_new_registration_survives_that_other_engines_learn_of_it() {
    let ([mut first, mut second], key, _) = tables();
    let window = first.alloc_window(PD, WindowType::Type1, || 0x1234_0000).unwrap() >> 8;
    replace(&mut first, key, PD, 64);
    let to = bind(&mut first, window, 1, key);
    assert!(second.check(by(2), to.rkey(), 8, 4, Access::RemoteWrite).is_err());
    second.insert_entry(key, first.entry(key).unwrap());
    assert!(second.check(by(2), to.rkey(), 8, 4, Access::RemoteWrite).is_ok());
}
