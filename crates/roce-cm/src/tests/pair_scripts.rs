//! Every script of what a network can do to the first datagrams of two agents.

use std::thread;
use std::time::Duration;

use roce_wire::management::{RejectReason, SidrStatus};

use crate::fuzzing::{Act, Fate, Pair, Plan, Seen};

/// Runs `plan` with every script of `len` fates, and calls `check` before what is left is destroyed.
///
/// Scripts that begin alike are run once if they differ only in fates that no datagram met. Returns the
/// number of scripts that this stands for.
fn every_script(len: u32, plan: &Plan, check: fn(&mut Pair)) -> usize {
    let first_fates = Fate::ALL;
    thread::scope(|scope| {
        let runs = first_fates.map(|first| {
            scope.spawn(move || {
                let of_rest = 4_usize.pow(len - 1);
                let mut script = 0;
                while script < of_rest {
                    let rest =
                        (0..len - 1).map(|at| Fate::ALL[script / 4_usize.pow(len - 2 - at) % 4]);
                    let fates: Vec<Fate> = [first].into_iter().chain(rest).collect();
                    let unused = run(&fates, plan, check);
                    script += 4_usize.pow(unused.min(len - 1));
                }
                script
            })
        });
        runs.into_iter().map(|it| it.join().unwrap()).sum()
    })
}

/// Runs one script; returns the number of fates that no datagram met.
fn run(fates: &[Fate], plan: &Plan, check: fn(&mut Pair)) -> u32 {
    struct OnPanic<'a>(&'a [Fate], &'a Plan);
    impl Drop for OnPanic<'_> {
        fn drop(&mut self) {
            if thread::panicking() {
                eprintln!("script {:?}, {:?}", self.0, self.1);
            }
        }
    }
    let _on_panic = OnPanic(fates, plan);
    let mut pair = Pair::new(plan.clone(), fates.to_vec());
    pair.settle();
    check(&mut pair);
    pair.finish();
    fates.len().saturating_sub(pair.sent) as u32
}

/// The events of the only connection of a side.
fn seen(pair: &Pair, side: usize) -> &[Seen] {
    let mut all = pair.sides[side].seen.0.values();
    let first = all.next().map_or(&[][..], Vec::as_slice);
    assert!(all.next().is_none());
    first
}

/// The events of both sides of a connection that was established, and ended; the passive side may not
/// have heard that it was established, if the RTU was lost.
fn check_ended(pair: &mut Pair) {
    let ended = [Seen::Disconnected, Seen::TimewaitExit];
    assert_eq!(seen(pair, 0), [&[Seen::ConnectResponse][..], &ended].concat());
    let passive: Vec<Seen> =
        seen(pair, 1).iter().copied().filter(|it| *it != Seen::Established).collect();
    assert_eq!(passive, [&[Seen::ConnectRequest][..], &ended].concat());
}

const SCRIPTS: usize = 65_536;

//= test cm-states
#[test]
fn every_script_leaves_both_ends_established() {
    let scripts = every_script(8, &Plan::connect(), |pair| {
        assert_eq!(seen(pair, 0), [Seen::ConnectResponse]);
        assert_eq!(seen(pair, 1), [Seen::ConnectRequest, Seen::Established]);
        assert!(pair.is_established(0) && pair.is_established(1));
    });
    assert_eq!(scripts, SCRIPTS);
}

//= test cm-passive-drep
#[test]
fn every_script_lets_the_active_side_disconnect() {
    let mut plan = Plan::connect();
    plan.on_response.push((1, Act::Disconnect));
    plan.on_disconnected[0].clear();
    assert_eq!(every_script(8, &plan, check_ended), SCRIPTS);
}

#[test]
fn every_script_lets_the_passive_side_disconnect() {
    let mut plan = Plan::connect();
    plan.on_established.push((0, Act::Disconnect));
    plan.on_disconnected[1].clear();
    assert_eq!(every_script(8, &plan, check_ended), SCRIPTS);
}

#[test]
fn every_script_lets_both_sides_disconnect_at_once() {
    let mut plan = Plan::connect();
    plan.on_response.push((1, Act::Disconnect));
    plan.on_established.push((0, Act::Disconnect));
    assert_eq!(every_script(8, &plan, check_ended), SCRIPTS);
}

#[test]
fn every_script_brings_the_rejection_and_asks_the_program_once() {
    let plan = Plan { on_request: vec![(2, Act::Reject(28))], ..Plan::default() };
    let scripts = every_script(8, &plan, |pair| {
        assert_eq!(seen(pair, 0), [Seen::Rejected(RejectReason::CONSUMER)]);
        assert_eq!(seen(pair, 1), [Seen::ConnectRequest]);
    });
    assert_eq!(scripts, SCRIPTS);
}

//= test cm-repeated-sidr
#[test]
fn every_script_brings_the_answer_of_a_service_and_asks_the_program_once() {
    let on_request = vec![(2, Act::Answer)];
    let plan = Plan { is_resolution: true, on_request, ..Plan::default() };
    let scripts = every_script(8, &plan, |pair| {
        assert_eq!(seen(pair, 0), [Seen::ServiceResponse(SidrStatus::VALID)]);
        assert_eq!(seen(pair, 1), [Seen::ServiceRequest]);
    });
    assert_eq!(scripts, SCRIPTS);
}

/// Plans in which one side destroys its connection: in each state, and then a little later.
fn destructions() -> Vec<(&'static str, Plan)> {
    let destroy = |pause| vec![(pause, Act::Destroy)];
    let ended = || {
        let mut plan = Plan::connect();
        plan.on_response.push((1, Act::Disconnect));
        plan.on_disconnected[0].clear();
        plan
    };
    let mut plans = vec![
        ("active, REQ sent", Plan { on_start: destroy(0), ..Plan::connect() }),
        ("active, REQ arriving", Plan { on_start: destroy(1), ..Plan::connect() }),
        ("active, REP arriving", Plan { on_start: destroy(2), ..Plan::connect() }),
        ("active, REP received", Plan { on_response: destroy(0), ..Plan::connect() }),
        ("active, REP received, later", Plan { on_response: destroy(5000), ..Plan::connect() }),
        ("passive, REQ received", Plan { on_request: destroy(0), ..Plan::connect() }),
        ("passive, REQ received, later", Plan { on_request: destroy(7000), ..Plan::connect() }),
        ("passive, established", Plan { on_established: destroy(0), ..Plan::connect() }),
        ("passive, established, later", Plan { on_established: destroy(3), ..Plan::connect() }),
        (
            "passive, REJ sent",
            Plan { on_request: vec![(0, Act::Reject(28)), (1, Act::Destroy)], ..Plan::connect() },
        ),
    ];
    for pause in [0, 1, 2, 3000] {
        let mut plan = Plan::connect();
        plan.on_request.push((pause, Act::Destroy));
        plans.push(("passive, REP sent", plan));
        let mut plan = Plan::connect();
        plan.on_response.push((pause, Act::Destroy));
        plans.push(("active, established", plan));
        let mut plan = ended();
        plan.on_response.push((1 + pause, Act::Destroy));
        plans.push(("active, DREQ sent", plan));
        let mut plan = ended();
        plan.on_disconnected[1] = destroy(pause);
        plans.push(("passive, DREQ received", plan));
        let mut plan = ended();
        plan.on_disconnected[0] = destroy(pause);
        plans.push(("active, timewait", plan));
        let mut plan = ended();
        plan.on_disconnected[1] = vec![(0, Act::Disconnect), (pause, Act::Destroy)];
        plans.push(("passive, timewait", plan));
    }
    plans
}

//= test cm-destroy
#[test]
fn either_side_may_be_destroyed_in_every_state_under_every_script() {
    for (name, plan) in destructions() {
        println!("{name}");
        let scripts = every_script(6, &plan, check_peer_of_the_end);
        assert_eq!(scripts, 4096);
    }
}

/// The peer of what was destroyed has heard of it, or has never heard of the connection.
fn check_peer_of_the_end(pair: &mut Pair) {
    let ends = [0, 1].map(|side| pair.is_established(side));
    assert_eq!(ends[0], ends[1]);
    let has_end = |side: usize| {
        let mut events = seen(pair, side).iter();
        let is_end =
            |it: &Seen| matches!(it, Seen::Rejected(_) | Seen::Unreachable | Seen::Disconnected);
        seen(pair, side).is_empty() || events.any(is_end)
    };
    for side in 0..2 {
        if pair.sides[side].held.is_empty() && !pair.sides[1 - side].held.is_empty() {
            assert!(has_end(1 - side), "{:?}", seen(pair, 1 - side));
        }
    }
}

/// As [`destructions`], but the process of the side ends.
fn deaths() -> Vec<(&'static str, Plan)> {
    let mut plans = destructions();
    for (_, plan) in &mut plans {
        for (_, act) in plan.reactions().into_iter().flatten() {
            if *act == Act::Destroy {
                *act = Act::Die;
            }
        }
    }
    plans
}

/// With six fates all that tells the peer may be lost or overtake its REP.
#[test]
fn either_process_may_die_in_every_state_under_every_script() {
    for (name, plan) in deaths() {
        println!("{name}");
        assert_eq!(every_script(5, &plan, check_peer_of_the_end), 1024);
    }
}

/// Without losses the peer is told within the time of one look and one datagram.
#[test]
fn the_peer_of_a_process_that_dies_is_told_once_the_orphans_are_found() {
    for (name, plan) in deaths() {
        let mut pair = Pair::new(plan, Vec::new());
        while pair.sides.iter().all(|side| !side.has_died()) {
            pair.step_next();
        }
        let end = pair.now + Duration::from_millis(252);
        while pair.next_time().is_some_and(|next| next <= end) {
            pair.step_next();
        }
        println!("{name}: {:?}", pair.log);
        check_peer_of_the_end(&mut pair);
        pair.finish();
    }
}

#[test]
fn a_resolution_may_be_destroyed_on_either_side_under_every_script() {
    for pause in [0, 1, 3, 5000] {
        let destroy = vec![(pause, Act::Destroy)];
        let answer = vec![(0, Act::Answer), (pause, Act::Destroy)];
        let plans = [
            Plan { on_start: destroy.clone(), on_request: answer.clone(), ..Plan::default() },
            Plan { on_request: destroy, ..Plan::default() },
            Plan { on_request: answer, ..Plan::default() },
        ];
        for plan in plans {
            let plan = Plan { is_resolution: true, ..plan };
            assert_eq!(every_script(6, &plan, |_| {}), 4096);
        }
    }
}
