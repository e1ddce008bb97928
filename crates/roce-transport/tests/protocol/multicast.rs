//! Multicast: the members of a group, and what they do not share.

use std::net::IpAddr;

use roce_simnet::Rights;
use roce_transport::{AttachError, MAX_GROUP_MEMBERS};
use roce_wire::{Deth, GRH_LEN, Psn, Qpn, Service, opcode};

use crate::common::connection::{DEFAULT, End, Options, connect, of_service};
use crate::common::exchange::sge;
use crate::common::forge;
use crate::common::world::World;

const UD: Options = of_service(Service::Ud);

fn group() -> IpAddr {
    IpAddr::from([239, 1, 2, 3])
}

/// A datagram to the members of a group, from the first queue pair.
fn datagram(from: End, q_key: u32) -> Vec<u8> {
    let mut headers = forge::headers(opcode::UD_SEND_ONLY, Qpn::MULTICAST, Psn::ZERO);
    headers.deth = Some(Deth { q_key, source_qp: from.qpn });
    forge::packet(&headers, b"to all")
}

fn post_receive(world: &mut World, end: End) {
    let region = world.hosts[end.node].memory.register(GRH_LEN + 6, Rights::ALL);
    end.post_recv(world, 1, &[sge(region, 0, GRH_LEN + 6)]);
}

/// A sender on node 0, and three queue pairs of node 1.
fn world_of_four() -> (World, End, [End; 3]) {
    let mut world = World::pair();
    let pairs = [(); 3].map(|()| connect(&mut world, [0, 1], UD));
    (world, pairs[0][0], pairs.map(|ends| ends[1]))
}

//= test ud-multicast
//= test wire-qpn-multicast
#[test]
fn each_member_receives_with_its_own_receive_and_others_nothing() {
    let (mut world, sender, [first, second, other]) = world_of_four();
    for end in [first, second] {
        assert_eq!(world.hosts[1].endpoint.attach(end.qpn, group()), Ok(true));
        assert_eq!(world.hosts[1].endpoint.attach(end.qpn, group()), Ok(false), "twice is once");
    }
    for end in [first, second, other] {
        post_receive(&mut world, end);
    }
    let packet = datagram(sender, UD.q_key);
    world.forge_to(0, 1, group(), &packet);
    let received = |world: &World| [first, second, other].map(|end| end.received(world).len());
    assert_eq!(received(&world), [1, 1, 0]);
    // The next one finds a receive at one of them only.
    post_receive(&mut world, second);
    world.forge_to(0, 1, group(), &packet);
    assert_eq!((received(&world), first.counter(&world, "out_of_buffer")), ([1, 2, 0], 1));
    // Another group, and the number without a group.
    world.forge_to(0, 1, IpAddr::from([239, 1, 2, 4]), &packet);
    world.forge(0, 1, &packet);
    assert_eq!((received(&world), first.counter(&world, "unknown_qp")), ([1, 2, 0], 2));
}

//= test ud-multicast
#[test]
fn a_member_takes_only_datagrams_with_its_q_key() {
    let (mut world, sender, [first, second, _]) = world_of_four();
    for end in [first, second] {
        world.hosts[1].endpoint.attach(end.qpn, group()).unwrap();
        post_receive(&mut world, end);
    }
    world.forge_to(0, 1, group(), &datagram(sender, UD.q_key ^ 1));
    assert_eq!(first.counter(&world, "bad_qkey"), 2, "one for each member");
    let send = forge::send_only(Qpn::MULTICAST, Psn::ZERO, b"reliable");
    world.forge_to(0, 1, group(), &send);
    assert_eq!(first.counter(&world, "wrong_service"), 2);
    assert!(first.received(&world).is_empty() && second.received(&world).is_empty());
}

#[test]
fn a_membership_ends_with_detach_or_with_the_queue_pair() {
    let (mut world, sender, [first, second, _]) = world_of_four();
    let endpoint = &mut world.hosts[1].endpoint;
    for end in [first, second] {
        endpoint.attach(end.qpn, group()).unwrap();
    }
    assert!(endpoint.detach(first.qpn, group()) && !endpoint.detach(first.qpn, group()));
    assert!(endpoint.has_members(group()) && endpoint.has_groups());
    assert!(endpoint.destroy_qp(second.qpn));
    assert!(!endpoint.has_members(group()) && !endpoint.has_groups());
    world.forge_to(0, 1, group(), &datagram(sender, UD.q_key));
    assert_eq!(first.counter(&world, "unknown_qp"), 1);
}

#[test]
fn only_so_many_queue_pairs_of_datagrams_are_members_and_only_of_groups() {
    let (mut world, _, [first, ..]) = world_of_four();
    let reliable = connect(&mut world, [0, 1], DEFAULT)[1];
    let more: Vec<End> =
        (0..MAX_GROUP_MEMBERS).map(|_| connect(&mut world, [0, 1], UD)[1]).collect();
    let endpoint = &mut world.hosts[1].endpoint;
    let unicast = IpAddr::from([10, 0, 0, 1]);
    assert_eq!(endpoint.attach(first.qpn, unicast), Err(AttachError::NotAGroup(unicast)));
    assert_eq!(
        endpoint.attach(reliable.qpn, group()),
        Err(AttachError::NotDatagrams(reliable.qpn))
    );
    let unknown = Qpn::new(0x77_7777).unwrap();
    assert_eq!(endpoint.attach(unknown, group()), Err(AttachError::UnknownQp(unknown)));
    for end in &more {
        assert_eq!(endpoint.attach(end.qpn, group()), Ok(true));
    }
    let (group, limit) = (group(), MAX_GROUP_MEMBERS);
    let refused = endpoint.attach(first.qpn, group);
    assert_eq!(refused, Err(AttachError::TooManyMembers { group, limit }));
}
