//! The paths of datagrams that are posted and not sent.

use std::collections::VecDeque;

use roce_transport::PathHandle;

use crate::path_table::PathTable;

/// Entries above which those of sent datagrams are removed.
const MAX_STALE: usize = 8;

/// The paths that a queue pair's datagrams need, of which it is a user until these are sent.
#[derive(Debug, Default)]
pub(crate) struct DatagramPaths {
    /// Datagrams posted so far.
    posted: u64,
    /// Paths in the order of use, each with the value of `posted` behind its last datagram.
    users: VecDeque<(PathHandle, u64)>,
}

impl DatagramPaths {
    /// Notes a datagram posted to a path. `outstanding` returns the number of those not sent.
    #[inline]
    pub(crate) fn on_posted(
        &mut self,
        table: &mut PathTable,
        path: PathHandle,
        outstanding: impl FnOnce() -> u32,
    ) {
        self.posted += 1;
        match self.users.back_mut() {
            Some((latest, until)) if *latest == path => *until = self.posted,
            _ => {
                table.retain(path);
                self.users.push_back((path, self.posted));
            }
        }
        if self.users.len() > MAX_STALE {
            let sent = self.posted.saturating_sub(u64::from(outstanding()));
            while let Some((path, _)) = self.users.pop_front_if(|(_, until)| *until <= sent) {
                table.release(path);
            }
        }
    }

    /// Releases all paths: nothing is posted.
    pub(crate) fn release(&mut self, table: &mut PathTable) {
        self.users.drain(..).for_each(|(path, _)| table.release(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_table::PathEntry;
    use roce_wire::OuterHeaders;
    use std::net::IpAddr;

    /// A table of so many paths that only their own users keep.
    fn paths(count: u8) -> (PathTable, Vec<PathHandle>) {
        let mut table = PathTable::default();
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let handles = (0..count)
            .map(|last| {
                let outer = OuterHeaders::new(address(1), address(last));
                table.insert(PathEntry::new(outer).unwrap())
            })
            .collect();
        (table, handles)
    }

    #[test]
    fn a_path_lives_until_its_datagrams_are_sent_and_no_longer_than_needed() {
        let (mut table, handles) = paths(32);
        let mut users = DatagramPaths::default();
        for (index, handle) in handles.iter().enumerate() {
            // The queue keeps the latest three.
            users.on_posted(&mut table, *handle, || 3);
            table.release(*handle);
            for (at, handle) in handles[..=index].iter().enumerate() {
                let is_unsent = at + 3 > index;
                assert!(!is_unsent || table.find(*handle).is_some(), "{at} after {index}");
            }
            let kept = handles[..=index].iter().filter(|it| table.find(**it).is_some()).count();
            assert!(kept <= MAX_STALE + 1, "{kept} paths");
        }
        users.release(&mut table);
        assert!(handles.iter().all(|handle| table.find(*handle).is_none()));
    }

    #[test]
    fn one_destination_is_one_user_of_its_path() {
        let (mut table, handles) = paths(1);
        let mut users = DatagramPaths::default();
        for _ in 0..1000 {
            users.on_posted(&mut table, handles[0], || 0);
        }
        assert_eq!(users.users, [(handles[0], 1000)]);
    }
}
