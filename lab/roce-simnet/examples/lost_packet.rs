//! Prints the packets of a WRITE of which one is lost, with their times.

use std::error::Error;

use roce_fabric::Impairment;
use roce_faults::FaultRule;
use roce_simnet::{Connection, Rights, World, WorldConfig, default_options};
use roce_transport::{CompletionStatus, SendOperation, SendWr};
use roce_wire::Frame;

fn main() -> Result<(), Box<dyn Error>> {
    let mut world = World::new(&["alice", "bob"], WorldConfig::default());
    let [alice, bob] = Connection::open(&mut world, [0, 1], default_options()).ends;
    let rule = FaultRule::parse("drop write 2")?;
    world.set_impairment(alice.host, Impairment::ruled([rule]).ok_or("links cannot do this")?);

    let source = world.hosts[alice.host].memory.register(5000, Rights::ALL);
    let target = world.hosts[bob.host].memory.register(5000, Rights::ALL);
    world.hosts[alice.host].memory.bytes_mut(source).fill(0x5a);
    let write = SendOperation::write(target.remote(0));
    world.post_send(alice, SendWr::new(1, write, source.piece(0, 5000)).signaled())?;
    while world.step() {}

    let packets = &world.timeline().packets;
    for packet in packets {
        let bth = Frame::parse(&packet.frame)?.packet()?.headers().bth;
        let (sent, from) = (packet.sent.as_nanos(), &world.hosts[packet.from].name);
        let note = if packet.lost { ", lost" } else { "" };
        println!("{sent:>9} ns {from:>5}: {} psn {}{note}", bth.opcode.name(), bth.psn);
    }
    assert_eq!(packets.iter().filter(|packet| packet.lost).count(), 1);
    assert!(packets.iter().any(|packet| packet.again), "the lost packet was sent again");
    assert_eq!(world.hosts[bob.host].memory.bytes(target), [0x5a; 5000]);
    let (_, completion) = world.hosts[alice.host].poll_completion().ok_or("no completion")?;
    assert_eq!((completion.wr_id, completion.status), (1, CompletionStatus::Success));
    Ok(())
}
