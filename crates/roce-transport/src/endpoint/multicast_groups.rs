//! The queue pairs that are members of multicast groups.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use roce_wire::Qpn;

use crate::AttachError;

/// Most multicast groups of an endpoint, as rxe has.
pub const MAX_GROUPS: usize = 8192;
/// Most queue pairs that are members of one multicast group, as rxe has.
pub const MAX_GROUP_MEMBERS: usize = 56;

/// The members of each group that has some.
#[derive(Debug, Default)]
pub(super) struct MulticastGroups(BTreeMap<IpAddr, Vec<Qpn>>);

impl MulticastGroups {
    /// Makes a queue pair a member. Returns false if it was one before.
    pub(super) fn attach(&mut self, group: IpAddr, qpn: Qpn) -> Result<bool, AttachError> {
        if !group.is_multicast() {
            return Err(AttachError::NotAGroup(group));
        }
        if !self.0.contains_key(&group) && self.0.len() >= MAX_GROUPS {
            return Err(AttachError::TooManyGroups { limit: MAX_GROUPS });
        }
        let members = self.0.entry(group).or_default();
        if members.contains(&qpn) {
            return Ok(false);
        }
        if members.len() >= MAX_GROUP_MEMBERS {
            return Err(AttachError::TooManyMembers { group, limit: MAX_GROUP_MEMBERS });
        }
        members.push(qpn);
        Ok(true)
    }

    /// Ends a membership. Returns false if there was none.
    pub(super) fn detach(&mut self, group: IpAddr, qpn: Qpn) -> bool {
        let Some(members) = self.0.get_mut(&group) else { return false };
        let before = members.len();
        members.retain(|member| *member != qpn);
        let is_found = members.len() < before;
        if members.is_empty() {
            self.0.remove(&group);
        }
        is_found
    }

    /// Ends all memberships of a queue pair.
    pub(super) fn remove(&mut self, qpn: Qpn) {
        self.0.retain(|_, members| {
            members.retain(|member| *member != qpn);
            !members.is_empty()
        });
    }

    /// Returns the members of a group.
    pub(super) fn members(&self, group: IpAddr) -> &[Qpn] {
        self.0.get(&group).map_or(&[], Vec::as_slice)
    }

    /// Returns true if no group has members.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
