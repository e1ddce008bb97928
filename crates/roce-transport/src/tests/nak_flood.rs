//! Packets that arrive many times before a response leaves.

use roce_wire::{Aeth, Bth, opcode};

use super::*;

#[test]
fn a_message_that_comes_often_while_no_receive_is_posted_is_told_so_once() {
    let [mut receiver, peer] = pair();
    let send = Headers::new(Bth::new(opcode::RC_SEND_ONLY, QPN, FIRST_PSN));
    for _ in 0..1000 {
        receiver.takes_made(peer.address, &send, &[3; 10]);
    }
    let answers: Vec<_> = receiver.sends(64).iter().map(|it| headers_of(it)).collect();
    let syndrome = Some(roce_wire::Syndrome::RnrNak { timer: RnrTimer::DEFAULT });
    assert_eq!(answers.len(), 1);
    assert_eq!(
        (answers[0].aeth.map(|it: Aeth| it.syndrome), answers[0].bth.psn),
        (syndrome, FIRST_PSN)
    );
    assert_eq!(receiver.endpoint.counters().send_rnr_err, 1);
}
