//! Credits: a receiver says how many receives it has posted, a sender does not run far ahead.

use std::time::Duration;

use roce_fabric::{Fate, Impairment};
use roce_transport::EndpointConfig;
use roce_wire::{Credits, Syndrome, opcode};

use crate::common::connection::{DEFAULT, End, Options, connect, rnr_timer, timeout};
use crate::common::exchange::{Exchange, Kind};
use crate::common::world::{World, WorldConfig, test_config};

/// A connection over which one message has gone, with `more` receives posted behind it.
fn told(config: WorldConfig, more: usize) -> (World, [End; 2], Exchange) {
    let mut world = World::new(2, config);
    world.keep_timeline(true);
    let options = Options { min_rnr_timer: rnr_timer(20), ack_timeout: timeout(16), ..DEFAULT };
    let ends = connect(&mut world, [0, 1], options);
    let first = Exchange::prepare(&mut world, ends, Kind::Send, 10, 1);
    first.post_receives(&mut world);
    let rest = Exchange::prepare(&mut world, ends, Kind::Send, 10, 10);
    for i in 0..more {
        rest.post_receive(&mut world, i);
    }
    first.post_sends(&mut world);
    world.run_until(|world| first.is_done(world));
    (world, ends, rest)
}

//= test rc-credits-told
#[test]
fn an_acknowledgement_tells_how_many_receives_are_left() {
    for more in [0, 1, 2, 3, 4, 7, 10] {
        let (world, _, _) = told(test_config(), more);
        let ack = world.sent(1)[0].headers();
        assert_eq!(ack.bth.opcode, opcode::RC_ACKNOWLEDGE);
        let credits = Credits::for_count(more as u32);
        assert_eq!(ack.aeth.unwrap().syndrome, Syndrome::Ack { credits });
    }
}

//= test rc-credits-told
#[test]
fn a_receiver_that_does_not_count_says_so() {
    let endpoint = EndpointConfig { advertise_credits: false, ..EndpointConfig::default() };
    let (world, _, _) = told(WorldConfig { endpoint, ..test_config() }, 3);
    let ack = world.sent(1)[0].headers().aeth.unwrap();
    assert_eq!(ack.syndrome, Syndrome::Ack { credits: Credits::UNLIMITED });
}

//= test rc-credits
#[test]
fn a_sender_runs_at_most_one_message_ahead_of_its_credits_and_goes_on_when_there_are_more() {
    for more in [0, 1, 2, 3, 4] {
        let (mut world, _, rest) = told(test_config(), more);
        let before = world.sent(0).len();
        rest.post_sends(&mut world);
        // Shorter than the wait that an RNR NAK asks for.
        world.run_for(Duration::from_millis(5));
        let sent = world.sent(0).len() - before;
        assert!(sent <= more + 1, "{sent} messages for {more} receives\n{}", world.report());
        for i in more..rest.count {
            rest.post_receive(&mut world, i);
        }
        world.run_until(|world| rest.is_done(world));
        rest.check(&world);
    }
}

#[test]
fn a_message_that_is_sent_twice_uses_one_credit() {
    let (mut world, ends, rest) = told(test_config(), 10);
    world.set_impairment(0, Impairment::scripted([Fate::Drop]));
    for i in 0..5 {
        rest.post_send(&mut world, i);
    }
    world.run_until(|world| ends[0].sent(world).len() == 6);
    assert!(ends[0].counter(&world, "resent_pkts") > 0, "{}", world.report());
    // Five receives are left, four of them can be told of.
    let before = world.sent(0).len();
    for i in 5..9 {
        rest.post_send(&mut world, i);
    }
    assert_eq!(world.sent(0).len() - before, 4, "at once\n{}", world.report());
}

#[test]
fn writes_and_reads_need_no_credits() {
    let (mut world, ends, _) = told(test_config(), 0);
    for kind in [Kind::Write, Kind::Read, Kind::FetchAdd] {
        let exchange = Exchange::post(&mut world, ends, kind, 2000, 5);
        world.run_for(Duration::from_millis(1));
        exchange.check(&world);
    }
}
