//! Senders and receivers.

use std::thread;
use std::time::{Duration, Instant};

use roce_verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, CompletionStatus, ConnectOptions,
    Device, MemoryRegion, ProtectionDomain, QueuePair, RemoteAddr, SendOperation, SendWr,
};

use super::Scenario;
use super::network::Failure;

/// Longest sleep of a sender without a completion.
const PATIENCE: Duration = Duration::from_millis(100);
/// Longest wait for the WRITEs under way at the end.
const MAX_FINISH: Duration = Duration::from_secs(5);

/// A receiver, whose program does nothing.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) device: Device,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

impl Receiver {
    pub(super) fn new(device: Device) -> Result<Self, Failure> {
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(64, None)?);
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let region = pd.register(Scenario::MESSAGE_BYTES, access)?;
        Ok(Self { device, pd, cq, region })
    }
}

/// The period that is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) from: Instant,
    pub(super) to: Instant,
}

/// What a sender has done in the period.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    /// Bytes of messages that completed.
    pub(super) bytes: u64,
    /// From post to completion.
    pub(super) latencies: Vec<Duration>,
    /// Messages that failed, which ends the sender.
    pub(super) failed: u64,
}

/// A sender that waits for its completions by events.
#[derive(Debug)]
pub(super) struct Load {
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair,
    _peer: QueuePair,
    data: MemoryRegion,
    to: RemoteAddr,
    /// When the WRITEs under way were posted, by their number.
    posted: [Option<Instant>; Scenario::OUTSTANDING],
}

impl Load {
    pub(super) fn connect(
        device: &Device,
        receiver: &Receiver,
        traffic_class: u8,
    ) -> Result<Self, Failure> {
        let pd = device.alloc_pd()?;
        let channel = device.create_completion_channel()?;
        let cq = device.create_cq(64, Some(&channel))?;
        let queue_pair = |pd: &ProtectionDomain, cq| pd.queue_pair(cq, cq).max_send_wr(16).build();
        let (qp, peer) = (queue_pair(&pd, &cq)?, queue_pair(&receiver.pd, &receiver.cq)?);
        let options = ConnectOptions { traffic_class, ..ConnectOptions::default() };
        let (mine, theirs) = (qp.dest(None)?, peer.dest(None)?);
        qp.connect(&theirs, &options)?;
        peer.connect(&mine, &options)?;
        let data = pd.register(Scenario::MESSAGE_BYTES, AccessFlags::LOCAL_WRITE)?;
        let to = RemoteAddr { addr: receiver.region.address(), rkey: receiver.region.rkey() };
        let posted = [None; Scenario::OUTSTANDING];
        Ok(Self { channel, cq, qp, _peer: peer, data, to, posted })
    }

    /// Writes as fast as it may until the end of the period.
    pub(super) fn run(&mut self, period: Period) -> Result<Sent, Failure> {
        let mut sent = Sent::default();
        (0..Scenario::OUTSTANDING).try_for_each(|number| self.post(number))?;
        while Instant::now() < period.to && sent.failed == 0 {
            for completion in self.wait(period.to)? {
                self.note(&completion, period, &mut sent);
                if completion.status == CompletionStatus::Success {
                    self.post(completion.wr_id as usize)?;
                }
            }
        }
        Ok(sent)
    }

    /// Writes once in each interval, and later if the last WRITE takes longer.
    pub(super) fn run_paced(
        &mut self,
        period: Period,
        interval: Duration,
    ) -> Result<Sent, Failure> {
        let mut sent = Sent::default();
        let mut due = Instant::now();
        while due < period.to && sent.failed == 0 {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.post(0)?;
            while self.posted[0].is_some() && Instant::now() < period.to {
                for completion in self.wait(period.to)? {
                    self.note(&completion, period, &mut sent);
                }
            }
            due = (due + interval).max(Instant::now());
        }
        Ok(sent)
    }

    /// Waits until no WRITE is under way, for a bounded time.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + MAX_FINISH;
        while self.posted.iter().any(Option::is_some) && Instant::now() < deadline {
            for completion in self.wait(deadline)? {
                self.posted[completion.wr_id as usize] = None;
            }
        }
        Ok(())
    }

    fn post(&mut self, number: usize) -> Result<(), Failure> {
        let data = [self.data.sge(..Scenario::MESSAGE_BYTES)?];
        let work = SendWr::new(number as u64, SendOperation::write(self.to), data).signaled();
        self.posted[number] = Some(Instant::now());
        Ok(self.qp.post_send([work])?)
    }

    /// Sleeps until there are completions, for a bounded time.
    fn wait(&self, until: Instant) -> Result<Vec<Completion>, Failure> {
        self.cq.arm(false);
        let left = until.saturating_duration_since(Instant::now());
        self.channel.wait(Some(left.min(PATIENCE)))?;
        Ok(self.cq.poll_all())
    }

    fn note(&mut self, completion: &Completion, period: Period, sent: &mut Sent) {
        let now = Instant::now();
        let Some(posted) = self.posted[completion.wr_id as usize].take() else { return };
        if completion.status != CompletionStatus::Success {
            sent.failed += 1;
        } else if (period.from..period.to).contains(&now) {
            sent.bytes += Scenario::MESSAGE_BYTES as u64;
            sent.latencies.push(now - posted);
        }
    }
}
