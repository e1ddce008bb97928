//! Finds the packets that a sentence means among those of two queue pairs that send by turns.

use std::collections::HashMap;

use roce_faults::{
    FaultAction, FaultDirection, FaultRule, FaultRuleError, PacketFacts, RuleCounter, SeenPacket,
    Sender,
};
use roce_wire::{Bth, Headers, OuterHeaders, Psn, Qpn, UdpChecksum, opcode, seal};

fn main() -> Result<(), FaultRuleError<'static>> {
    let rule = FaultRule::parse("drop request 2 of queue pair 2")?;
    assert_eq!(rule.action, FaultAction::Drop);

    let mut counter = RuleCounter::new(rule.packets);
    let mut numbers: HashMap<Sender, u32> = HashMap::new();
    let mut lost = Vec::new();
    for turn in 0..6 {
        let facts = PacketFacts::of(&frame(0x20 + turn % 2, turn / 2));
        // Queue pairs are numbered in the order of their first packets.
        let next = numbers.len() as u32 + 1;
        let queue_pair = facts.map(|facts| *numbers.entry(facts.sender).or_insert(next));
        let direction = FaultDirection::Sent;
        if counter.admits(&SeenPacket {
            facts,
            direction,
            queue_pair,
            rank: None,
            rail: None,
            time: Default::default(),
        }) {
            lost.extend(facts.map(|facts| (queue_pair, facts.psn)));
        }
    }
    assert_eq!(lost, [(Some(2), Psn::wrapping(1))]);
    println!("{rule}: the packet with PSN {} is lost", lost[0].1);
    Ok(())
}

/// Returns a SEND of no bytes to a queue pair.
fn frame(dest_qp: u32, psn: u32) -> Vec<u8> {
    let outer = OuterHeaders::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let bth =
        Bth::new(opcode::RC_SEND_ONLY, Qpn::new(dest_qp).expect("24 bits"), Psn::wrapping(psn));
    let mut frame = vec![0; outer.len() + 16];
    let len = Headers::new(bth).emit_around(&mut frame[outer.len()..], 0);
    seal(&outer, 0, &mut frame, len, UdpChecksum::Zero).expect("a packet of one IP version");
    frame
}
