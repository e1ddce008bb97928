//! Every script of pass, drop, duplicate and delay for the first packets of either direction.

use std::time::Duration;

use roce_fabric::{Fate, Impairment};

use crate::common::connection::{DEFAULT, connect};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::World;

/// Longer than a round trip, so that others overtake.
const SHORT: Duration = Duration::from_micros(7);
/// Longer than the retransmission timer, so that a ghost of the past comes back.
const LONG: Duration = Duration::from_millis(3);

const FATES: [Fate; 5] =
    [Fate::Pass, Fate::Drop, Fate::Duplicate(SHORT), Fate::Delay(SHORT), Fate::Delay(LONG)];

/// The script with this number, of `len` fates, in base `FATES.len()`.
fn script(number: usize, len: u32) -> Vec<Fate> {
    (0..len).map(|digit| FATES[number / FATES.len().pow(digit) % FATES.len()]).collect()
}

/// Two messages of two packets under `requests` one way and `responses` the other.
fn run(kind: Kind, requests: Vec<Fate>, responses: Vec<Fate>) {
    let mut world = World::pair();
    let ends = connect(&mut world, [0, 1], DEFAULT);
    world.set_impairment(0, Impairment::scripted(requests));
    world.set_impairment(1, Impairment::scripted(responses));
    let exchange = Exchange::post(&mut world, ends, kind, 257, 2);
    world.run_until(|world| exchange.is_done(world));
    world.settle();
    exchange.check(&world);
}

/// Runs every pair of scripts of these lengths; names the pair that failed.
fn every_script(kinds: &[Kind], requests: u32, responses: u32) {
    for kind in kinds {
        for one in 0..FATES.len().pow(requests) {
            for other in 0..FATES.len().pow(responses) {
                let (there, back) = (script(one, requests), script(other, responses));
                let named = Named { kind: *kind, there: &there, back: &back };
                run(*kind, there.clone(), back.clone());
                drop(named);
            }
        }
    }
}

/// Tells what ran when a run panics.
struct Named<'a> {
    kind: Kind,
    there: &'a [Fate],
    back: &'a [Fate],
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}: requests {:?}, responses {:?}", self.kind, self.there, self.back);
        }
    }
}

const REQUESTS_LONG: u32 = 5;
const BOTH: u32 = 3;

#[test]
fn sends_arrive_exactly_once_under_any_fate_of_the_first_requests() {
    every_script(&[Kind::Send, Kind::SendImmediate, Kind::SendInvalidate], REQUESTS_LONG, 0);
}

#[test]
fn writes_arrive_exactly_once_under_any_fate_of_the_first_requests() {
    every_script(&[Kind::Write, Kind::WriteImmediate], REQUESTS_LONG, 0);
}

#[test]
fn reads_and_atomics_happen_exactly_once_under_any_fate_of_the_first_requests() {
    every_script(&Kind::COUNTED, REQUESTS_LONG - 1, 0);
}

#[test]
fn reads_and_atomics_happen_exactly_once_under_any_fate_of_the_first_responses() {
    every_script(&Kind::COUNTED, 0, REQUESTS_LONG);
}

#[test]
fn everything_happens_exactly_once_under_any_fate_of_the_first_packets_of_both_directions() {
    every_script(&Kind::ALL, BOTH, BOTH);
}
