//! Waiting for completions, and how they are replied.

use std::io::Write;
use std::time::{Duration, Instant};

use roce_verbs::{Completion, CompletionOperation, CompletionStatus};

use crate::objects::{Pair, Queue};
use crate::parse::Words;
use crate::result::Result;

/// `wait NAME send|recv count=N ms=N events=0|1`
pub(crate) fn wait(pair: &Pair, words: &Words<'_>, out: &mut impl Write) -> Result<String> {
    let queue = match words.at(2) {
        "send" => &pair.send,
        "recv" => &pair.recv,
        _ => return Err("wait NAME send|recv count=N ms=N events=0|1".into()),
    };
    let wanted: usize = words.number("count", 1)?;
    let deadline = Instant::now() + Duration::from_millis(words.number("ms", 1000)?);
    let by_event = words.number("events", 0u8)? != 0;
    for seen in 0..wanted {
        let next = if by_event {
            next_by_event(queue, deadline)?
        } else {
            next_by_polling(queue, deadline)
        };
        match next {
            Some(completion) => writeln!(out, "wc {}", line(&completion))?,
            None => return Err(format!("timeout: {seen} of {wanted}").into()),
        }
    }
    Ok(format!("count={wanted}"))
}

pub(crate) fn next_by_polling(queue: &Queue, deadline: Instant) -> Option<Completion> {
    queue.cq.spin_wait(deadline.saturating_duration_since(Instant::now()))
}

/// Arms, looks once more, and then sleeps on the channel.
fn next_by_event(queue: &Queue, deadline: Instant) -> Result<Option<Completion>> {
    loop {
        if let Some(completion) = queue.cq.poll_one() {
            return Ok(Some(completion));
        }
        queue.cq.arm(false);
        if let Some(completion) = queue.cq.poll_one() {
            return Ok(Some(completion));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        queue.channel.wait(Some(left))?;
    }
}

fn line(completion: &Completion) -> String {
    let mut line = format!("id={} status={}", completion.wr_id, completion.status.code());
    if completion.status != CompletionStatus::Success {
        return line; // the rest has no meaning then
    }
    line += &format!(" opcode={} len={}", opcode(completion.operation), completion.byte_len);
    if let Some(immediate) = completion.immediate {
        line += &format!(" imm={:#x}", u32::from_be_bytes(immediate));
    }
    if let Some(key) = completion.invalidated_key {
        line += &format!(" inv={key:#x}");
    }
    if let Some(source) = completion.source_qpn {
        line += &format!(" src={:#x}", source.get());
    }
    line
}

/// The number in `ibv_wc_opcode`.
fn opcode(operation: CompletionOperation) -> u32 {
    match operation {
        CompletionOperation::Send => 0,
        CompletionOperation::Write => 1,
        CompletionOperation::Read => 2,
        CompletionOperation::CompareSwap => 3,
        CompletionOperation::FetchAdd => 4,
        CompletionOperation::Flush => 8,
        CompletionOperation::AtomicWrite => 9,
        CompletionOperation::BindWindow => 5,
        CompletionOperation::LocalInvalidate => 6,
        CompletionOperation::Recv => 128,
        CompletionOperation::RecvWithImmediate => 129,
        _ => u32::MAX,
    }
}
