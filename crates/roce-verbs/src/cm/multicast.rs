//! Multicast groups that identifiers join.

use std::net::IpAddr;
use std::sync::Arc;

use roce_wire::{Gid, Qpn};

use super::event::{DatagramPeer, MulticastGroup};
use super::id::{Id, Phase};
use super::join::Join;
use crate::cm_router::{Error, JoinName, What, is_of_datagrams};

/// What an identifier wants of a multicast group; as the flags of `rdma_join_multicast_ex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinMode {
    /// To receive and to send.
    #[default]
    FullMember,
    /// To send: the interface does not become a member.
    SendOnly,
}

/// Most joins of an identifier.
const MAX_JOINS: usize = 1024;

impl Id {
    /// Joins a multicast group on the device of the identifier, with a number of the program's own; as
    /// `rdma_join_multicast_ex`. The event `MulticastJoin` or `MulticastError` follows, with that number.
    ///
    /// The interface is a member until the identifier [leaves](Self::leave) the group or ends. A queue pair
    /// receives the group's datagrams once the program has [attached](crate::QueuePair::attach) it.
    ///
    /// # Errors
    /// [`Error::WrongState`] unless the identifier is one of datagrams, and bound to an address of a device
    /// or with a resolved one; [`Error::NotAGroup`]; [`Error::FamiliesDiffer`] where the own address is of the
    /// other IP version; [`Error::TooManyGroups`] above 1024 joins.
    pub fn join(&self, group: IpAddr, mode: JoinMode, context: u64) -> Result<(), Error> {
        let wrong_state = Error::WrongState { call: "join" };
        let mut state = self.0.checked_state()?;
        let is_ready = matches!(state.phase, Phase::Bound | Phase::AddressResolved);
        if !is_ready || !is_of_datagrams(self.space()) {
            return Err(wrong_state);
        }
        let (Some(device), Some(local)) = (state.device.clone(), state.local) else {
            return Err(wrong_state);
        };
        if !group.is_multicast() {
            return Err(Error::NotAGroup { address: group });
        }
        if group.is_ipv4() != local.is_ipv4() {
            return Err(Error::FamiliesDiffer);
        }
        if state.joins.len() >= MAX_JOINS {
            return Err(Error::TooManyGroups { limit: MAX_JOINS });
        }
        let name = JoinName { group, context };
        let join = Join::new(name);
        state.joins.push(join.clone());
        drop(state);
        let target = Arc::clone(&self.0.target);
        match mode {
            JoinMode::SendOnly => join.finish(&target, Ok(None)),
            JoinMode::FullMember => device.driver().join_later(group, move |outcome| {
                join.finish(&target, outcome.map(Some));
            }),
        }
        Ok(())
    }

    /// Leaves a multicast group that was joined with this number; as `rdma_leave_multicast`. The event of
    /// the join is gone if it waits. Queue pairs stay attached.
    ///
    /// # Errors
    /// [`Error::NotJoined`].
    pub fn leave(&self, group: IpAddr, context: u64) -> Result<(), Error> {
        let left = JoinName { group, context };
        let join = {
            let mut state = self.0.checked_state()?;
            let at = state.joins.iter().position(|join| join.name == left);
            state.joins.remove(at.ok_or(Error::NotJoined { group })?)
        };
        join.end();
        self.0.target.take_events(|what| match what {
            What::MulticastJoin(name) | What::MulticastError(name, _) => *name == left,
            _ => false,
        });
        Ok(())
    }

    //= rule cm-multicast-group: cma.c: cma_iboe_join_multicast; cma.c: cma_iboe_set_mgid
    //# The members of a group are reached at its address as a GID and queue pair 0xffffff, with the Q_Key
    //# of the port space and the hop limit 64.
    /// Returns the way to the members of a group, of which an event tells.
    pub(super) fn members_of(&self, name: JoinName) -> Option<MulticastGroup> {
        let local = self.local_address()?.ip();
        let rows = self.device()?.gid_table().ok()?;
        let own = Gid::from(local);
        let row = rows.iter().find(|row| row.usable && row.gid == own)?;
        let members = DatagramPeer {
            qpn: Qpn::MULTICAST,
            q_key: self.q_key()?,
            gid_index: row.index,
            local,
            remote: name.group,
            traffic_class: self.0.state().type_of_service,
            flow_label: 0,
            hop_limit: 64,
        };
        Some(MulticastGroup { context: name.context, members })
    }
}
