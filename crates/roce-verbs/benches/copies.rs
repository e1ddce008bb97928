//! Time of the copies into and out of registered memory, in the caches and through 64 MiB.

// The bench is no user of the crate: the copies are private, and their file depends on nothing else of
// the crate.
#[allow(dead_code, unreachable_pub, unsafe_code, unused_imports)]
#[path = "../src"]
mod src {
    pub(crate) mod region;
}

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use roce_engine::Region;

use src::region::Mapping;

fn main() {
    divan::main();
}

/// Lengths in bytes: words, a small message, path MTUs, and what a message of many packets adds up to.
const LENS: [usize; 8] = [8, 64, 255, 1024, 4096, 16384, 65536, 1 << 20];

/// Bytes of a region that no cache holds.
const FAR: usize = 64 << 20;

/// Returns offsets, one after the other, that keep to the first `len` bytes or walk through all of them.
fn offsets(is_far: bool, len: usize) -> impl FnMut() -> usize {
    let mut at = 0;
    move || {
        at = if is_far && at + 2 * len <= FAR { at + len } else { 0 };
        at
    }
}

fn bench_write(bencher: Bencher<'_, '_>, len: usize, is_far: bool) {
    let region = Mapping::allocate(if is_far { FAR } else { len }, false).expect("memory");
    let frame = vec![7; len];
    let mut next = offsets(is_far, len);
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| black_box(region.write(next(), black_box(&frame))));
}

fn bench_read(bencher: Bencher<'_, '_>, len: usize, is_far: bool) {
    let region = Mapping::allocate(if is_far { FAR } else { len }, false).expect("memory");
    let mut frame = vec![7; len];
    let mut next = offsets(is_far, len);
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| black_box(region.read(next(), black_box(&mut frame))));
}

#[divan::bench(args = LENS)]
fn write_in_cache(bencher: Bencher<'_, '_>, len: usize) {
    bench_write(bencher, len, false);
}

#[divan::bench(args = LENS)]
fn write_through_64_mib(bencher: Bencher<'_, '_>, len: usize) {
    bench_write(bencher, len, true);
}

#[divan::bench(args = LENS)]
fn read_in_cache(bencher: Bencher<'_, '_>, len: usize) {
    bench_read(bencher, len, false);
}

#[divan::bench(args = LENS)]
fn read_through_64_mib(bencher: Bencher<'_, '_>, len: usize) {
    bench_read(bencher, len, true);
}

/// The payload of a packet with its CRC.
#[divan::bench(args = [256, 1024, 4096])]
fn read_summed_in_cache(bencher: Bencher<'_, '_>, len: usize) {
    let region = Mapping::allocate(len, false).expect("memory");
    let mut frame = vec![7; len];
    bencher
        .counter(BytesCount::new(len))
        .bench_local(|| black_box(region.read_summed(0, black_box(&mut frame))));
}

/// A copy by the kernel, which fails where a page is not present; another way to guard one.
#[divan::bench(args = [8, 64, 4096])]
fn read_by_the_kernel(bencher: Bencher<'_, '_>, len: usize) {
    let region = Mapping::allocate(len, false).expect("memory");
    let mut frame = vec![7; len];
    bencher.counter(BytesCount::new(len)).bench_local(|| {
        let mut local = [std::io::IoSliceMut::new(&mut frame)];
        let remote = [RemoteIoVec { base: region.address() as usize, len }];
        process_vm_readv(Pid::this(), &mut local, &remote).expect("mapped memory")
    });
}

/// A look at the pages before a copy; another way still.
#[divan::bench(args = [8, 64, 4096])]
fn populate_pages_that_are_present(bencher: Bencher<'_, '_>, len: usize) {
    let region = Mapping::allocate(len, false).expect("memory");
    bencher.bench_local(|| region.populate(0, black_box(len), false));
}

/// An access that faults.
#[divan::bench]
fn read_of_an_absent_page(bencher: Bencher<'_, '_>) {
    // SAFETY: no processor has the address, and the bench only finds that out.
    #[allow(unsafe_code)]
    let region = unsafe { Mapping::borrow((1_usize << 62) as *mut u8, 4096, false, true) };
    let region = region.expect("no page is looked at");
    let mut frame = vec![7; 4096];
    bencher.bench_local(|| black_box(region.read(0, black_box(&mut frame))));
}
