//! Datagrams to a multicast group.

use std::net::IpAddr;

use roce_verbs::exchange::QpDest;
use roce_verbs::{GRH_LEN, Gid, Qpn};

use crate::connection::{BASE, Connection};
use crate::fault::{Fault, expect_equal};
use crate::params::{Family, Operation, Post, Queue, WaitMode};

use super::transfer::check_receive;

/// Sends datagrams to a group of which the responder is a member: each arrives once, whole, with its
/// sender's number. After the membership has ended none arrives.
///
/// # Errors
/// At the first difference.
pub fn run(connection: &mut Connection, wait_mode: WaitMode) -> Result<(), Fault> {
    let group = match connection.settings.family {
        Family::V4 => IpAddr::from([239, 9, 1, 2]),
        Family::V6 => "ff15::9:1:2".parse().expect("an address"),
    };
    let group = Gid::from(group);
    let Connection { requester, responder, settings } = connection;
    let member = responder.pair.handle;
    let members = QpDest { qpn: Qpn::MULTICAST, gid: group, ..responder.pair.dest };
    responder.agent.attach(member, group)?;
    requester.agent.connect(requester.pair.handle, &members, settings)?;
    for len in [0, 1, settings.path_mtu - 1, settings.path_mtu] {
        send_one(connection, len, wait_mode)?;
    }

    let Connection { requester, responder, settings } = connection;
    responder.agent.detach(member, group)?;
    // The receive is for what is sent to the queue pair's own number, which is behind the group's.
    let post = Post::new(Operation::Send, requester.region.handle, BASE, 7);
    requester.post(&post)?;
    requester.successes(Queue::Send, 1, wait_mode)?;
    requester.agent.connect(requester.pair.handle, &responder.pair.dest, settings)?;
    send_one(connection, 11, wait_mode)
}

fn send_one(connection: &mut Connection, len: usize, wait_mode: WaitMode) -> Result<(), Fault> {
    let Connection { requester, responder, .. } = connection;
    let seed = 1900 + len as u64;
    requester.lay_out(len, seed)?;
    responder.prepare_place(GRH_LEN + len)?;
    responder.receive(GRH_LEN + len, 1)?;
    let post = Post::new(Operation::Send, requester.region.handle, BASE, len);
    requester.post(&post)?;
    requester.successes(Queue::Send, 1, wait_mode)?;
    let done = responder.successes(Queue::Receive, 1, wait_mode)?;
    check_receive(&done[0], &Post { len: GRH_LEN + len, ..post }, None)?;
    let sender = requester.pair.dest.qpn.get();
    expect_equal("the sender's queue pair number", done[0].source_qpn, Some(sender))?;
    responder.check_place_behind(GRH_LEN, len, seed)?;
    responder.nothing_more(Queue::Receive)
}
