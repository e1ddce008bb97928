//! A message to a peer that sleeps: how long until its answer is back.
//!
//! The server waits in one of several [`Way`]s; the client pauses, with 2 ms long enough for
//! everything at the server to have gone to sleep, sends eight bytes, and spins until eight come
//! back.
//!
//! ```text
//! server# wake_up --listen --interface eth0
//! client# wake_up --to 10.0.0.1 --interface eth0 --pause 2000 --seconds 1
//! {"count":430,"max":91.0,"min":18.2,"p50":24.0,"p99":48.1,"p999":90.2}
//! ```

mod wait;

use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use roce_verbs::{
    AccessFlags, Completion, CompletionChannel, CompletionQueue, CompletionStatus, Device,
    DeviceConfig, MemoryRegion, QueuePair, RecvWr, SendOperation, SendWr,
};
use serde_json::{Value, json};

use crate::histogram::Histogram;
use crate::meeting::Meeting;
use crate::program::{End, Failure, WARM_UP};
use crate::twins::{self, refused};

use self::wait::Waiter;
pub use self::wait::Way;

/// Whole round trips of 8 bytes to a peer that sleeps in between.
#[derive(Clone, Debug, Parser)]
#[command(name = "wake_up", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: End,
    /// The interface to use.
    #[arg(long)]
    pub interface: String,
    /// Microseconds of silence before each message.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub pause: u64,
    /// How this end waits for messages, if it is the one that listens.
    #[arg(long, value_enum, default_value_t = Way::Channel)]
    pub wait: Way,
}

/// Runs one end and returns what there is to report: the client's times, in µs.
///
/// # Errors
/// The other end is missing or goes, or the interface cannot carry RoCE.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let device = Device::open(&options.interface, DeviceConfig::default()).map_err(refused)?;
    match options.end.server() {
        None => serve(&device, &mut Meeting::listen(options.end.port)?, options.wait),
        Some(server) => ask(&device, &mut Meeting::with(server, options.end.port)?, options),
    }
}

/// What an end is made of: a message leaves from the first bytes and arrives behind them.
struct Parts {
    region: MemoryRegion,
    queue: CompletionQueue,
    qps: Vec<QueuePair>,
}

impl Parts {
    fn new(
        device: &Device,
        channel: Option<&CompletionChannel>,
        meeting: &mut Meeting,
    ) -> Result<Self, Failure> {
        let pd = device.alloc_pd().map_err(refused)?;
        let region = pd.register(4096, AccessFlags::LOCAL_WRITE).map_err(refused)?;
        let queue = device.create_cq(2 * DEPTH as usize, channel).map_err(refused)?;
        let builder = pd.queue_pair(&queue, &queue).max_send_wr(DEPTH).max_recv_wr(DEPTH);
        let parts = Self { region, queue, qps: vec![builder.build().map_err(refused)?] };
        twins::connect(&parts.qps, meeting)?;
        for _ in 0..DEPTH {
            parts.post_receive()?;
        }
        Ok(parts)
    }

    fn post_receive(&self) -> Result<(), Failure> {
        let place = self.region.sge(LEN..2 * LEN).map_err(refused)?;
        self.qps[0].post_recv([RecvWr::new(RECEIVED, [place])]).map_err(refused)
    }

    fn send(&self) -> Result<(), Failure> {
        let message = self.region.sge(..LEN).map_err(refused)?;
        let work = SendWr::new(SENT, SendOperation::send(), [message]);
        self.qps[0].post_send([work]).map_err(refused)
    }

    /// Notes a completion; returns whether it is a message that has come.
    fn handle(&self, completion: Completion) -> Result<bool, Failure> {
        if completion.status != CompletionStatus::Success {
            return Err(Failure::told(format!("a message failed: {completion:?}")));
        }
        let is_message = completion.wr_id == RECEIVED;
        if is_message {
            self.post_receive()?;
        }
        Ok(is_message)
    }
}

fn serve(device: &Device, meeting: &mut Meeting, way: Way) -> Result<Value, Failure> {
    let channel = device.create_completion_channel().map_err(refused)?;
    let parts = Parts::new(device, Some(&channel), meeting)?;
    let waiter = Waiter::new(way, &channel)?;
    meeting.send(&0_u32)?;
    let mut answered = 0_u64;
    loop {
        // Long beside a pause, so that this does not keep the device awake.
        let found = waiter.wait(&parts.queue, &channel, LOOK, |completion| {
            if parts.handle(completion)? {
                parts.send()?;
                answered += 1;
            }
            Ok(())
        })?;
        if found == 0 && meeting.has_news() {
            return Ok(json!({ "answered": answered }));
        }
    }
}

fn ask(device: &Device, meeting: &mut Meeting, options: &Options) -> Result<Value, Failure> {
    let parts = Parts::new(device, None, meeting)?;
    let _: u32 = meeting.receive()?;
    let mut times = Histogram::new();
    let started = Instant::now();
    let measuring = started + Duration::from_secs_f64(WARM_UP);
    let end = measuring + Duration::from_secs_f64(options.end.seconds);
    while Instant::now() < end {
        if options.pause > 0 {
            thread::sleep(Duration::from_micros(options.pause));
        }
        let sent = Instant::now();
        parts.send()?;
        let mut is_answered = false;
        while !is_answered {
            match parts.queue.poll_one() {
                Some(completion) => is_answered = parts.handle(completion)?,
                None if sent.elapsed() > PATIENCE => {
                    return Err(Failure::told("no answer came within a second"));
                }
                None => {}
            }
        }
        if sent >= measuring {
            times.add(sent.elapsed());
        }
    }
    meeting.send(&0_u32)?;
    Ok(times.report())
}

/// Answers leave faster than the other end acknowledges them, where messages come back to back.
const DEPTH: u32 = 64;
const LEN: usize = 8;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1);
