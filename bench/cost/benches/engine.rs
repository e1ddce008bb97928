//! Time of single steps of the engine with parsing and sealing, without the kernel.

use std::time::Duration;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use roce_cost::{Drive, Run, Side, Wire, Workload};
use roce_transport::Instant;

fn main() {
    divan::main();
}

fn workload(name: &str) -> Workload {
    Workload::by_name(name).expect("one of those that there are")
}

/// Two sides for single messages of 8 bytes, both directions of a wire, and a clock.
struct Bench {
    sides: [Side; 2],
    wires: [Wire; 2],
    now: Instant,
    workload: Workload,
    posted: u64,
}

impl Bench {
    fn new() -> Self {
        let workload = workload("write-8");
        let sides = Side::pair(workload.path_mtu, workload.len as usize);
        let wires = [Wire::new(), Wire::new()];
        Self { sides, wires, now: Instant::default(), workload, posted: 0 }
    }

    fn post_and_transmit(&mut self) {
        self.now += Duration::from_micros(1);
        self.posted += 1;
        self.sides[0].post_send(self.now, self.workload.request(self.posted, true));
        self.sides[0].transmit(self.now, &mut self.wires[0]);
    }

    fn receive(&mut self) {
        self.sides[1].receive(self.now, &mut self.wires[0]);
    }

    fn acknowledge(&mut self) {
        self.sides[1].transmit(self.now, &mut self.wires[1]);
    }

    fn take_acknowledgement(&mut self) -> u64 {
        self.sides[0].receive(self.now, &mut self.wires[1]);
        self.sides[0].take_completions()
    }
}

/// Measures `step` alone, without its preparation and completion.
fn measure(
    bencher: Bencher<'_, '_>,
    before: impl Fn(&mut Bench),
    step: impl Fn(&mut Bench),
    after: impl Fn(&mut Bench),
) {
    let bench = std::cell::RefCell::new(Bench::new());
    bencher
        .with_inputs(|| {
            // Finish the last iteration, then prepare this one.
            let bench = &mut *bench.borrow_mut();
            if bench.posted > 0 {
                after(bench);
            }
            before(bench);
        })
        .bench_local_values(|()| step(&mut bench.borrow_mut()));
}

#[divan::bench(sample_size = 1, sample_count = 20_000)]
fn post_and_transmit_8_bytes(bencher: Bencher<'_, '_>) {
    measure(
        bencher,
        |_| {},
        Bench::post_and_transmit,
        |bench| {
            bench.receive();
            bench.acknowledge();
            bench.take_acknowledgement();
        },
    );
}

#[divan::bench(sample_size = 1, sample_count = 20_000)]
fn receive_a_write_of_8_bytes(bencher: Bencher<'_, '_>) {
    measure(bencher, Bench::post_and_transmit, Bench::receive, |bench| {
        bench.acknowledge();
        bench.take_acknowledgement();
    });
}

#[divan::bench(sample_size = 1, sample_count = 20_000)]
fn transmit_an_acknowledgement(bencher: Bencher<'_, '_>) {
    let before = |bench: &mut Bench| {
        bench.post_and_transmit();
        bench.receive();
    };
    measure(bencher, before, Bench::acknowledge, |bench| {
        bench.take_acknowledgement();
    });
}

#[divan::bench(sample_size = 1, sample_count = 20_000)]
fn take_an_acknowledgement_and_complete(bencher: Bencher<'_, '_>) {
    let before = |bench: &mut Bench| {
        bench.post_and_transmit();
        bench.receive();
        bench.acknowledge();
    };
    let step = |bench: &mut Bench| assert_eq!(bench.take_acknowledgement(), 1);
    measure(bencher, before, step, |_| {});
}

/// Measures both sides together, from the first message to the last completion.
#[divan::bench(args = Workload::ALL.map(|workload| workload.name))]
fn carry(bencher: Bencher<'_, '_>, name: &str) {
    let workload = workload(name);
    let messages = if workload.len == 8 { 4096 } else { 16 };
    bencher
        .counter(BytesCount::new(u64::from(workload.len) * messages))
        .counter(ItemsCount::new(workload.packets_a_message() * messages))
        .with_inputs(|| Run::<Side>::new(workload, messages))
        .bench_local_values(|mut run| {
            while !run.is_done() {
                run.drive_requester();
                run.drive_responder();
            }
            run
        });
}
