//! Random operations on regions and windows, through the tables of one engine or of several, held
//! against a list that knows only what is bound.

use std::rc::Rc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roce_engine::{MemoryTable, PlainRegion, Registration, WindowType};
use roce_fuzz_support::{repeat_with, seeds};
use roce_transport::{Access, AccessFlags, Accessor, Memory, PdHandle, WindowBinding};
use roce_wire::Qpn;

const LEN: usize = 256;
const STEPS: usize = 300;

/// A region as the model knows it.
struct Region {
    key: u32,
    pd: PdHandle,
    access: AccessFlags,
    first: u64,
    bytes: Rc<PlainRegion>,
    is_registered: bool,
}

/// A window, and what its present binding opens.
struct Window {
    number: u32,
    pd: PdHandle,
    window_type: WindowType,
    bound: Option<Bound>,
    is_allocated: bool,
}

#[derive(Clone, Copy)]
struct Bound {
    key: u32,
    region: usize,
    to: WindowBinding,
    by: Qpn,
}

#[derive(Default)]
struct Model {
    regions: Vec<Region>,
    windows: Vec<Window>,
    /// All keys of windows that ever were.
    keys: Vec<u32>,
}

fn accessor(random: &mut StdRng) -> Accessor {
    let qpn = Qpn::new(random.random_range(2..5)).unwrap();
    // Of three queue pairs two are of one domain.
    Accessor { pd: PdHandle(qpn.get().min(3)), qpn }
}

fn rights(random: &mut StdRng) -> AccessFlags {
    AccessFlags::from_bits_truncate(random.random::<u32>() | random.random::<u32>())
}

fn pick<T>(random: &mut StdRng, list: &[T]) -> Option<usize> {
    (!list.is_empty()).then(|| random.random_range(0..list.len()))
}

impl Model {
    /// Returns whether a binding is allowed, by the rules alone.
    fn allows(&self, by: Accessor, window: &Window, region: &Region, to: &WindowBinding) -> bool {
        if !window.is_allocated || window.pd != by.pd {
            return false;
        }
        let of_type = match window.window_type {
            WindowType::Type1 => !to.access.contains(AccessFlags::ZERO_BASED),
            WindowType::Type2B => window.bound.is_none() && to.len > 0,
        };
        if !of_type || to.len == 0 {
            return of_type;
        }
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let is_writable = region.access.contains(AccessFlags::LOCAL_WRITE);
        let end = u128::from(to.addr) + u128::from(to.len);
        region.is_registered
            && region.pd == by.pd
            && region.access.contains(AccessFlags::MW_BIND)
            && (is_writable || !to.access.intersects(writes))
            && to.addr >= region.first
            && end <= u128::from(region.first) + LEN as u128
    }

    /// Returns the region and the offset that an access through a window reaches.
    fn opens(
        &self,
        by: Accessor,
        key: u32,
        address: u64,
        len: u64,
        access: Access,
    ) -> Option<(usize, u64)> {
        let right = match access {
            Access::RemoteRead => AccessFlags::REMOTE_READ,
            Access::RemoteWrite => AccessFlags::REMOTE_WRITE,
            Access::RemoteAtomic => AccessFlags::REMOTE_ATOMIC,
            _ => return None,
        };
        let of_key = |it: &&Window| it.bound.is_some_and(|bound| bound.key == key);
        let window = self.windows.iter().find(of_key)?;
        let bound = window.bound?;
        let is_zero_based = bound.to.access.contains(AccessFlags::ZERO_BASED);
        let first = if is_zero_based { 0 } else { bound.to.addr };
        let is_inside = address >= first
            && u128::from(address) + u128::from(len)
                <= u128::from(first) + u128::from(bound.to.len);
        let is_for = window.window_type == WindowType::Type1 || bound.by == by.qpn;
        let is_open = window.pd == by.pd && is_for && bound.to.access.contains(right) && is_inside;
        let start = bound.to.addr - self.regions[bound.region].first;
        is_open.then(|| (bound.region, start + address - first))
    }

    fn end_bindings(&mut self, ends: impl Fn(&Window, &Bound) -> bool) {
        for window in &mut self.windows {
            if window.bound.is_some_and(|bound| ends(window, &bound)) {
                window.bound = None;
            }
        }
    }
}

fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut tables = vec![MemoryTable::<Rc<PlainRegion>>::default()];
    let engines = 1 + seed as usize % 3;
    if engines > 1 {
        tables[0].share_windows();
        tables.extend((1..engines).map(|_| tables[0].clone()).collect::<Vec<_>>());
    }
    let mut model = Model::default();
    for step in 0..STEPS {
        let by = accessor(&mut random);
        let engine = if engines > 1 { random.random_range(0..engines) } else { 0 };
        match random.random_range(0..20) {
            0 => {
                let (pd, access) = (by.pd, rights(&mut random));
                let first = [0, 0x1000, u64::MAX - 512][random.random_range(0..3)];
                let bytes = Rc::new(PlainRegion::new(LEN));
                let how = Registration {
                    pd,
                    access,
                    iova: first,
                    invalidatable: false,
                    on_demand: false,
                };
                let key = tables[0].insert(Rc::clone(&bytes), how, || random.random());
                let entry = tables[0].entry(key).unwrap();
                tables[1..].iter_mut().for_each(|table| table.insert_entry(key, entry.clone()));
                let is_registered = true;
                model.regions.push(Region { key, pd, access, first, bytes, is_registered });
            }
            1 => {
                let types = [WindowType::Type1, WindowType::Type2B];
                let window_type = types[random.random_range(0..2)];
                let key =
                    tables[engine].alloc_window(by.pd, window_type, || random.random()).unwrap();
                model.keys.push(key);
                let (number, pd) = (key >> 8, by.pd);
                let (bound, is_allocated) = (None, true);
                model.windows.push(Window { number, pd, window_type, bound, is_allocated });
            }
            2 if random.random_bool(0.3) => {
                let Some(index) = pick(&mut random, &model.regions) else { continue };
                tables.iter_mut().for_each(|table| table.remove(model.regions[index].key));
                model.regions[index].is_registered = false;
                model.end_bindings(|_, bound| bound.region == index);
            }
            3 if random.random_bool(0.3) => {
                let Some(index) = pick(&mut random, &model.windows) else { continue };
                let number = model.windows[index].number;
                tables[engine].free_window(number);
                model.windows[index].is_allocated = false;
                model.end_bindings(|window, _| window.number == number);
            }
            4 if random.random_bool(0.3) => {
                tables[engine].unbind_windows_of(by.qpn);
                model.end_bindings(|window, bound| {
                    window.window_type == WindowType::Type2B && bound.by == by.qpn
                });
            }
            5..=9 => {
                let window = pick(&mut random, &model.windows);
                let region = pick(&mut random, &model.regions);
                let (Some(window), Some(region)) = (window, region) else { continue };
                let to = WindowBinding {
                    window: model.windows[window].number,
                    tag: random.random(),
                    lkey: model.regions[region].key,
                    addr: model.regions[region]
                        .first
                        .wrapping_add(random.random_range(0..LEN as u64)),
                    len: random.random_range(0..=LEN as u64) / random.random_range(1..4),
                    access: rights(&mut random),
                };
                let expected =
                    model.allows(by, &model.windows[window], &model.regions[region], &to);
                let done = tables[engine].bind_window(by, &to);
                assert_eq!(done.is_ok(), expected, "step {step}: {by:?} {to:?} {done:?}");
                if expected {
                    let bound = Bound { key: to.rkey(), region, to, by: by.qpn };
                    model.windows[window].bound = (to.len > 0).then_some(bound);
                    model.keys.push(to.rkey());
                }
            }
            10 => {
                let Some(index) = pick(&mut random, &model.keys) else { continue };
                let key = model.keys[index];
                let is_shut = |window: &Window, bound: &Bound| {
                    let is_type2 = window.window_type == WindowType::Type2B;
                    bound.key == key && is_type2 && bound.by == by.qpn && window.pd == by.pd
                };
                let mut all = model.windows.iter();
                let expected = all.any(|it| it.bound.is_some_and(|bound| is_shut(it, &bound)));
                let done = tables[engine].invalidate(by, key);
                assert_eq!(done.is_ok(), expected, "step {step}: {by:?} {key:#x} {done:?}");
                model.end_bindings(is_shut);
            }
            _ => {
                let table = &mut tables[engine];
                let Some(index) = pick(&mut random, &model.keys) else { continue };
                let key = model.keys[index];
                let region = pick(&mut random, &model.regions);
                let first = region.map_or(0, |index| model.regions[index].first);
                let address = first.wrapping_add(random.random_range(0..LEN as u64) & !7);
                let accesses = [
                    Access::LocalRead,
                    Access::LocalWrite,
                    Access::RemoteRead,
                    Access::RemoteWrite,
                    Access::RemoteAtomic,
                ];
                let access = accesses[random.random_range(0..5)];
                let len =
                    if access == Access::RemoteAtomic { 8 } else { random.random_range(1..40) };
                let expected = model.opens(by, key, address, len, access);
                let granted = table.check(by, key, address, len, access);
                let what = format!("step {step}: {by:?} {key:#x} {address:#x} {len} {access:?}");
                let Some((region, offset)) = expected else {
                    assert!(granted.is_err(), "{what}");
                    continue;
                };
                if access == Access::RemoteAtomic && !offset.is_multiple_of(8) {
                    assert!(granted.is_err(), "{what}");
                    continue;
                }
                // The grant is of the bytes that the model says, and of no others.
                let mark = random.random();
                table.write(granted.expect(&what), 0, &[mark]).unwrap();
                let mut seen = [0];
                let bytes = &model.regions[region].bytes;
                roce_engine::Region::read(&**bytes, offset as usize, &mut seen).unwrap();
                assert_eq!(seen, [mark], "{what}");
            }
        }
    }
    for (index, region) in model.regions.iter().enumerate().filter(|(_, it)| it.is_registered) {
        let is_of = |it: &&Window| it.bound.is_some_and(|bound| bound.region == index);
        let bound = model.windows.iter().filter(is_of).count();
        assert_eq!(tables[0].windows_bound_to(region.key), bound, "region {index}");
    }
}

//= test mw-access
//= test mw-invalidate
//= test mw-bind-range
#[test]
fn a_key_opens_what_its_window_is_bound_to_at_that_moment_and_nothing_else() {
    for seed in seeds(2000) {
        let run = std::panic::catch_unwind(|| run(seed));
        assert!(run.is_ok(), "{}", repeat_with(seed, env!("CARGO_PKG_NAME")));
    }
}
