//! Multicast groups that identifiers of connection management join.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use roce_netns::Host;
use roce_test_macros::tier1;
use roce_tests::datagrams::{DatagramEnd, address_handle};
use roce_tests::fixtures::{Cable, TestDevice, pattern};
use roce_tests::ip::wait_until;
use roce_verbs::cm::{
    Error, EventChannel, EventKind, Id, JoinMode, MulticastGroup, PortSpace, UDP_Q_KEY,
};
use roce_verbs::{
    CompletionOperation, CompletionStatus, DeviceConfig, Qpn, SendOperation, SendWr, Service,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A host with a channel, and a device that the channel's identifiers use.
struct End<'a> {
    host: &'a Host,
    channel: EventChannel,
    device: TestDevice,
}

impl<'a> End<'a> {
    fn on(host: &'a Host) -> Self {
        let device = TestDevice::on(host, DeviceConfig::default());
        Self { host, channel: EventChannel::new(DeviceConfig::default()).unwrap(), device }
    }

    fn bound(&self, address: &str) -> Id {
        let id = self.channel.create_id(PortSpace::UDP, 1).unwrap();
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        self.host.run(|| id.bind(address)).unwrap();
        id
    }

    fn event(&self) -> EventKind {
        self.channel.next(Some(LIMIT)).unwrap().expect("an event within the time allowed").kind
    }

    fn joined(&self, id: &Id, group: &str, mode: JoinMode, context: u64) -> MulticastGroup {
        id.join(group.parse().unwrap(), mode, context).unwrap();
        match self.event() {
            EventKind::MulticastJoin(group) => group,
            other => panic!("{other:?}"),
        }
    }

    fn queue_pair(&self, joined: &MulticastGroup) -> DatagramEnd {
        let (pd, cq) = (&self.device.pd, &self.device.cq);
        let builder = pd.queue_pair(cq, cq).service(Service::Ud);
        DatagramEnd::of(&self.device, 4, builder, joined.members.q_key)
    }

    /// Returns true if the kernel has made the interface a member of a group.
    fn is_member(&self, group: &str) -> bool {
        let mut list = std::process::Command::new("ip");
        list.args(["maddr", "show", "dev", "eth0"]);
        let output = self.host.run(|| list.output()).unwrap();
        String::from_utf8_lossy(&output.stdout).contains(&format!("{group}\n"))
    }
}

#[tier1]
//= test cm-multicast-group
fn one_that_only_sends_reaches_members_at_what_the_event_says() {
    let cable = Cable::with_mtu(1500);
    let [left, right] = [&cable.left, &cable.right].map(End::on);
    let ends = [("239.1.2.3", "10.1.0.1", "10.1.0.2"), ("ff15::1:2", "fd00:1::1", "fd00:1::2")];
    for (seed, (group, here, there)) in (1..).zip(ends) {
        let (sender, member) = (left.bound(here), right.bound(there));
        let to = left.joined(&sender, group, JoinMode::SendOnly, 6);
        let of = right.joined(&member, group, JoinMode::FullMember, 7);
        assert!(right.is_member(group) && !left.is_member(group));
        assert_eq!((to.context, of.context), (6, 7));
        let members = of.members;
        assert_eq!((members.qpn, members.q_key), (Qpn::MULTICAST, UDP_Q_KEY));
        assert_eq!((members.q_key, members.hop_limit), (0x0123_4567, 64));
        assert_eq!(members.remote, group.parse::<IpAddr>().unwrap());
        assert_eq!(members.local, there.parse::<IpAddr>().unwrap());
        let (from, receiver) = (left.queue_pair(&to), right.queue_pair(&of));
        receiver.qp.attach(members.remote).unwrap();
        receiver.post_receive(0);
        from.region.write(0, &pattern(1000, seed)).unwrap();
        let work = SendWr::new(9, SendOperation::send(), [from.region.sge(..1000).unwrap()]);
        let handle = address_handle(&left.device, group, None);
        from.qp.post_send_to([work.signaled()], &handle, to.members.qpn, to.members.q_key).unwrap();
        assert_eq!(left.device.completion().status, CompletionStatus::Success);
        let received = right.device.completion();
        assert_eq!(received.operation, CompletionOperation::Recv, "{received:?}");
        assert!(receiver.contents(0, &received) == pattern(1000, seed));
    }
}

#[tier1]
fn the_interface_leaves_a_group_with_its_last_join_or_identifier() {
    let cable = Cable::with_mtu(1500);
    let end = End::on(&cable.left);
    let group = "239.1.2.3";
    let (first, second) = (end.bound("10.1.0.1"), end.bound("10.1.0.1"));
    end.joined(&first, group, JoinMode::FullMember, 1);
    end.joined(&first, group, JoinMode::FullMember, 2);
    end.joined(&second, group, JoinMode::FullMember, 1);
    let address: IpAddr = group.parse().unwrap();
    first.leave(address, 1).unwrap();
    assert!(matches!(first.leave(address, 1), Err(Error::NotJoined { .. })));
    first.leave(address, 2).unwrap();
    assert!(end.is_member(group), "the second identifier has joined it");
    drop(second);
    wait_until("the interface has left the group", || !end.is_member(group));
    // An event that waits is gone with its join, whether it has come or not, and others stay.
    for context in [3, 4] {
        first.join(address, JoinMode::FullMember, context).unwrap();
    }
    first.leave(address, 3).unwrap();
    let EventKind::MulticastJoin(joined) = end.event() else { panic!("no event of a join") };
    assert_eq!((joined.context, end.channel.is_empty()), (4, true));
    assert_eq!(first.destroy(), 3);
    wait_until("the interface has left the group", || !end.is_member(group));
}

#[tier1]
fn a_join_that_makes_no_sense_is_refused_and_joins_are_bounded() {
    let cable = Cable::with_mtu(1500);
    let end = End::on(&cable.left);
    let group = IpAddr::from([239, 1, 2, 3]);
    let errno = |id: &Id, address: IpAddr| {
        id.join(address, JoinMode::FullMember, 1).map_err(|error| error.errno())
    };
    let connects = end.channel.create_id(PortSpace::TCP, 1).unwrap();
    end.host.run(|| connects.bind("10.1.0.1:0".parse().unwrap())).unwrap();
    assert_eq!(errno(&connects, group), Err(libc::EINVAL));
    let idle = end.channel.create_id(PortSpace::UDP, 1).unwrap();
    assert_eq!(errno(&idle, group), Err(libc::EINVAL));
    let id = end.bound("10.1.0.1");
    assert_eq!(errno(&id, "10.1.0.2".parse().unwrap()), Err(libc::EINVAL));
    assert_eq!(errno(&id, "ff15::1:2".parse().unwrap()), Err(libc::EINVAL));
    assert_eq!(id.leave(group, 1).map_err(|error| error.errno()), Err(libc::EADDRNOTAVAIL));

    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    for number in 0..1024_u32 {
        let [high, low] = (number as u16).to_be_bytes();
        id.join([239, 2, high, low].into(), JoinMode::FullMember, 1).unwrap();
    }
    for _ in 0..1024 {
        assert!(matches!(end.event(), EventKind::MulticastJoin(_)));
    }
    assert_eq!(errno(&id, group), Err(libc::ENOMEM));
    // A socket for 20 of them.
    assert!(descriptors() <= before + 52, "{before}, then {}", descriptors());
    drop(id);
    wait_until("the sockets are closed", || descriptors() <= before);
}

#[tier1]
fn a_groups_address_is_resolved_over_the_route_or_from_the_own_address() {
    let cable = Cable::with_mtu(1500);
    let end = End::on(&cable.left);
    let group = SocketAddr::from(([239, 1, 2, 3], 0));
    let own = SocketAddr::from(([10, 1, 0, 1], 0));
    let resolve = |source| {
        let id = end.channel.create_id(PortSpace::UDP, 1).unwrap();
        end.host.run(|| id.resolve_addr(source, group, LIMIT)).map(|()| id)
    };
    assert_eq!(resolve(None).unwrap_err().errno(), libc::ENETUNREACH);
    let mut route = std::process::Command::new("ip");
    route.args(["route", "add", "239.0.0.0/8", "dev", "eth0"]);
    for source in [Some(own), None] {
        let id = resolve(source).unwrap();
        assert_eq!(end.event(), EventKind::AddressResolved);
        let known = (id.local_address().map(|it| it.ip()), id.peer_address());
        assert_eq!(known, (Some(own.ip()), Some(group)));
        end.joined(&id, "239.1.2.3", JoinMode::FullMember, 1);
        if source.is_some() {
            assert!(end.host.run(|| route.status()).unwrap().success());
        }
    }
}
