//! The device's own thread: it drives when nobody else does.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use roce_transport::Instant;

use super::{AWAY, LONGEST_AWAY, Shared, next_work, sleep};
use crate::netlink::AddressNews;
use crate::placement::{self, Placement, PlacementError};

/// How long after an inline round the thread believes that there will be another.
const RECENT: Duration = Duration::from_micros(300);
/// Rounds of the thread between two looks for news of addresses while it does not sleep: a look
/// is a system call.
const ROUNDS_A_NEWS: u32 = 1024;
/// The longest it stays away while another thread sleeps in `drive_until`.
const FAR_AWAY: Duration = Duration::from_millis(100);

impl Shared {
    /// How long the thread may stay away because someone else is driving, as far as can be
    /// told; `None` where it has to drive. `away` is how long it stays away if somebody polls, and
    /// is set to what that will be next time.
    fn may_stay_away(&self, now: Instant, away: &mut Duration) -> Option<Duration> {
        let this_time = std::mem::replace(away, AWAY);
        if self.drivers.load(Ordering::Acquire) == 0 {
            let last = Instant::from_nanos(self.inline_at.load(Ordering::Relaxed));
            let is_recent = last.as_nanos() != 0 && now.saturating_since(last) < RECENT;
            if is_recent {
                *away = (2 * this_time).min(LONGEST_AWAY);
            }
            return is_recent.then_some(this_time);
        }
        // The other sleeps as we do, and wakes us when it leaves. But it may sleep on from before
        // a third one set a timer, or left work behind: such are ours.
        let engine = self.lock();
        if engine.is_unfinished() {
            return None;
        }
        match engine.endpoint.poll_timeout().map(|at| at + AWAY) {
            Some(late) if late <= now => None,
            Some(late) => Some(FAR_AWAY.min(late.saturating_since(now))),
            None => Some(FAR_AWAY),
        }
    }

    /// Looks at interface and neighbours again.
    fn refresh(&self) {
        self.port.refresh(&mut self.lock());
        let peers = self.lock().paths.peers();
        for peer in peers {
            // The kernel is asked without the engine's lock.
            if let Some(station) = self.port.station(peer) {
                self.lock().paths.point_at(peer, station);
            }
        }
    }

    /// The device's thread.
    pub(super) fn run(&self, news: &AddressNews) {
        let mut last_work = self.now();
        let mut rounds_since_news = ROUNDS_A_NEWS;
        let mut away = AWAY;
        while !self.stopping.load(Ordering::Acquire) {
            rounds_since_news += 1;
            if rounds_since_news > ROUNDS_A_NEWS {
                rounds_since_news = 0;
                if news.take() {
                    self.refresh();
                }
            }
            let now = self.now();
            if let Some(limit) = self.may_stay_away(now, &mut away) {
                self.doze(news, false, Some(limit), now);
                rounds_since_news = ROUNDS_A_NEWS;
                continue;
            }
            let wake_at = {
                let mut engine = self.lock();
                if engine.round(now).worked() {
                    last_work = now;
                    continue;
                }
                self.wake_at(&engine, now)
            };
            if now.saturating_since(last_work) < self.patience.spin() {
                std::thread::yield_now();
                continue;
            }
            self.doze(news, true, wake_at.map(|at| at.saturating_since(now)), now);
            self.patience.note_sleep(self.now().saturating_since(now));
            rounds_since_news = ROUNDS_A_NEWS;
        }
    }

    /// The thread's sleep: it can be woken, and others can see until when it lasts.
    fn doze(&self, news: &AddressNews, devices: bool, limit: Option<Duration>, now: Instant) {
        let until = limit.map_or(u64::MAX, |limit| (now + limit).as_nanos());
        self.wakes_at.store(until, Ordering::SeqCst);
        // A timer that was set, or work that was left, before the others could see that we sleep.
        // Who holds the lock may have looked already, so it is waited for.
        let set_meanwhile =
            devices && next_work(&self.lock()).is_some_and(|at| at.as_nanos() < until);
        // Who left `drive_until` before that, or left work behind, has not seen that the thread
        // sleeps for so long.
        let is_for_a_driver = !devices && limit.is_some_and(|limit| limit > LONGEST_AWAY);
        let left_meanwhile = is_for_a_driver
            && (self.drivers.load(Ordering::SeqCst) == 0 || self.lock().is_unfinished());
        let stopping = self.stopping.load(Ordering::Acquire);
        if !set_meanwhile && !left_meanwhile && !stopping {
            let mut fds = vec![self.wake.as_fd(), news.as_fd()];
            if devices {
                fds.extend(self.device_fds.iter().map(|fd| fd.as_fd()));
            }
            if let Err(error) = sleep(&fds, limit) {
                tracing::error!(%error, "the device's thread cannot sleep");
            }
        }
        self.wakes_at.store(0, Ordering::Release);
        let _read = self.wake.read();
    }
}

/// A thread of ours takes no signals, and runs where the device's configuration says: on any
/// CPU unless one was chosen, whatever its creator was bound to. A launcher that binds a rank
/// to one core must not put both on it.
pub(super) fn become_a_background_thread(placement: Placement) -> Result<(), PlacementError> {
    let _blocked = nix::sys::signal::SigSet::all().thread_block();
    if placement.cpu.is_none() {
        placement::unbind();
    }
    placement.apply()
}
