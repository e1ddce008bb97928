//! A multicast group that an identifier has joined, or is about to join.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roce_io::MulticastMembership;

use crate::cm_router::{EventTarget, JoinName, What};

/// A join of an identifier, which may have several of one group. A clone is the same join.
#[derive(Clone, Debug)]
pub(super) struct Join {
    pub(super) name: JoinName,
    progress: Arc<Mutex<Progress>>,
}

#[derive(Debug)]
enum Progress {
    /// The monitor thread has it.
    Pending,
    /// The interface is a member, unless the identifier only sends.
    Joined { _membership: Option<MulticastMembership> },
    /// The identifier has left the group, or did not join it.
    Ended,
}

impl Join {
    pub(super) fn new(name: JoinName) -> Self {
        Self { name, progress: Arc::new(Mutex::new(Progress::Pending)) }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the membership and reports what became of the join, unless it has ended.
    pub(super) fn finish(
        &self,
        target: &Arc<EventTarget>,
        outcome: io::Result<Option<MulticastMembership>>,
    ) {
        let mut progress = self.progress();
        if matches!(*progress, Progress::Ended) {
            return;
        }
        match outcome {
            Ok(_membership) => {
                *progress = Progress::Joined { _membership };
                target.push(What::MulticastJoin(self.name));
            }
            Err(error) => {
                *progress = Progress::Ended;
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                target.push(What::MulticastError(self.name, errno));
            }
        }
    }

    /// Ends the membership, also one that comes later: no event follows.
    pub(super) fn end(self) {
        let ended = std::mem::replace(&mut *self.progress(), Progress::Ended);
        drop(ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm_router::{EventList, Signal};
    use roce_wire::management::PortSpace;

    #[test]
    fn a_join_that_has_ended_reports_nothing_and_one_that_has_not_reports_once() {
        let list = Arc::new(EventList::new(Signal::descriptor().unwrap()));
        let target = Arc::new(EventTarget::new(PortSpace::UDP, 0, Arc::clone(&list)));
        let join = |context| Join::new(JoinName { group: [239, 1, 2, 3].into(), context });
        let ended = join(1);
        ended.clone().end();
        ended.finish(&target, Ok(None));
        assert!(list.is_empty());
        join(2).finish(&target, Ok(None));
        assert!(matches!(list.pop().unwrap().what, What::MulticastJoin(name) if name.context == 2));
        let refused = join(3);
        refused.finish(&target, Err(io::Error::from_raw_os_error(libc::ENOMEM)));
        refused.finish(&target, Ok(None));
        let What::MulticastError(name, errno) = list.pop().unwrap().what else { panic!() };
        assert_eq!((name.context, errno, list.is_empty()), (3, libc::ENOMEM, true));
    }
}
