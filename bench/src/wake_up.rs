//! A message to a peer that sleeps: how long until its answer is back.
//!
//! The server waits in one of several [`WaitMethod`]s; the client pauses, with 2 ms long enough for
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

use crate::connect_qps::{self, refused};
use crate::control_channel::ControlChannel;
use crate::histogram::Histogram;
use crate::program::{EndOptions, Failure, WARM_UP};

pub use self::wait::WaitMethod;
use self::wait::Waiter;

/// Whole round trips of 8 bytes to a peer that sleeps in between.
#[derive(Clone, Debug, Parser)]
#[command(name = "wake_up", about)]
pub struct Options {
    /// Which end this is.
    #[command(flatten)]
    pub end: EndOptions,
    /// The interface to use.
    #[arg(long)]
    pub interface: String,
    /// Microseconds of silence before each message.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub pause: u64,
    /// How this end waits for messages, if it is the one that listens.
    #[arg(long, value_enum, default_value_t = WaitMethod::Channel)]
    pub wait: WaitMethod,
}

/// Runs one end and returns what there is to report: the client's times, in µs.
///
/// # Errors
/// The other end is missing or goes, or the interface cannot carry RoCE.
pub fn run(options: &Options) -> Result<Value, Failure> {
    let device = Device::open(&options.interface, DeviceConfig::default()).map_err(refused)?;
    match options.end.server() {
        None => serve(&device, &mut ControlChannel::listen(options.end.port)?, options.wait),
        Some(server) => {
            ask(&device, &mut ControlChannel::connect(server, options.end.port)?, options)
        }
    }
}

/// What an end is made of: a message leaves from the first bytes and arrives behind them.
struct Resources {
    region: MemoryRegion,
    queue: CompletionQueue,
    qps: Vec<QueuePair>,
}

impl Resources {
    fn new(
        device: &Device,
        channel: Option<&CompletionChannel>,
        control: &mut ControlChannel,
    ) -> Result<Self, Failure> {
        let pd = device.alloc_pd().map_err(refused)?;
        let region = pd.register(4096, AccessFlags::LOCAL_WRITE).map_err(refused)?;
        let queue = device.create_cq(2 * DEPTH as usize, channel).map_err(refused)?;
        let builder = pd.queue_pair(&queue, &queue).max_send_wr(DEPTH).max_recv_wr(DEPTH);
        let resources = Self { region, queue, qps: vec![builder.build().map_err(refused)?] };
        connect_qps::connect(&resources.qps, control)?;
        for _ in 0..DEPTH {
            resources.post_receive()?;
        }
        Ok(resources)
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

fn serve(
    device: &Device,
    control: &mut ControlChannel,
    method: WaitMethod,
) -> Result<Value, Failure> {
    let channel = device.create_completion_channel().map_err(refused)?;
    let resources = Resources::new(device, Some(&channel), control)?;
    let waiter = Waiter::new(method, &channel)?;
    control.send(&0_u32)?;
    let mut answered = 0_u64;
    loop {
        // Long beside a pause, so that this does not keep the device awake.
        let found = waiter.wait(&resources.queue, &channel, WAIT_TIMEOUT, |completion| {
            if resources.handle(completion)? {
                resources.send()?;
                answered += 1;
            }
            Ok(())
        })?;
        if found == 0 && control.is_readable() {
            return Ok(json!({ "answered": answered }));
        }
    }
}

fn ask(device: &Device, control: &mut ControlChannel, options: &Options) -> Result<Value, Failure> {
    let resources = Resources::new(device, None, control)?;
    let _: u32 = control.receive()?;
    let mut times = Histogram::new();
    let started = Instant::now();
    let measuring = started + Duration::from_secs_f64(WARM_UP);
    let end = measuring + Duration::from_secs_f64(options.end.seconds);
    while Instant::now() < end {
        if options.pause > 0 {
            thread::sleep(Duration::from_micros(options.pause));
        }
        let sent = Instant::now();
        resources.send()?;
        let mut is_answered = false;
        while !is_answered {
            match resources.queue.poll_one() {
                Some(completion) => is_answered = resources.handle(completion)?,
                None if sent.elapsed() > REPLY_TIMEOUT => {
                    return Err(Failure::told("no answer came within a second"));
                }
                None => {}
            }
        }
        if sent >= measuring {
            times.add(sent.elapsed());
        }
    }
    control.send(&0_u32)?;
    Ok(times.report())
}

/// Answers leave faster than the other end acknowledges them, where messages come back to back.
const DEPTH: u32 = 64;
const LEN: usize = 8;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;
const WAIT_TIMEOUT: Duration = Duration::from_millis(100);
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
