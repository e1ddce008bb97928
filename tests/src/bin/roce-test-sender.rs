//! A client of `roce-test-echo` for the tests: posts messages one by one, for a time.
//!
//! `roce-test-sender INTERFACE ADDRESS:PORT SECONDS TIMEOUT RETRIES MESSAGE`; says `ready` when it
//! is connected. A message is a SEND that the server echoes (`echo`), or a WRITE of no bytes
//! (`write`), for which the server posts no request of its own. Its last line is `N messages, all
//! succeeded` or says which status the first request that failed ended with.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use roce_tests::fixtures::{TestDevice, device_config};
use roce_tests::outage::ConnectTimes;
use roce_verbs::{
    CompletionOperation, CompletionStatus, Device, RecvWr, RemoteAddr, SendOperation, SendWr,
    exchange,
};

/// Messages under way.
const DEPTH: u64 = 4;
const LEN: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, address, seconds, timeout, retry_count, message] = &arguments[..] else {
        return Err(
            "roce-test-sender INTERFACE ADDRESS:PORT SECONDS TIMEOUT RETRIES MESSAGE".into()
        );
    };
    let is_echoed = message == "echo";
    let address: SocketAddr = address.parse()?;
    let times = ConnectTimes { timeout: timeout.parse()?, retry_count: retry_count.parse()? };
    let duration = Duration::from_secs_f64(seconds.parse()?);
    let end = TestDevice::of(Device::open(interface, device_config())?);
    let qp = end.queue_pair();
    let options = times.options();
    let theirs = exchange::connect(address, &qp.dest(None)?)?;
    qp.connect(&theirs, &options)?;
    let region = end.region(2 * LEN, 1);
    println!("ready");
    let (mut sent, mut ended, mut outstanding) = (0, 0, 0);
    let began = Instant::now();
    while began.elapsed() < duration || outstanding > 0 {
        if began.elapsed() < duration && sent - ended < DEPTH {
            let work = if is_echoed {
                qp.post_recv([RecvWr::new(sent, [region.sge(LEN..)?])])?;
                SendWr::new(sent, SendOperation::send(), [region.sge(..LEN)?])
            } else {
                // No byte is touched, so no key is looked at.
                let nowhere = RemoteAddr { addr: 0, rkey: 0 };
                SendWr::new(sent, SendOperation::write(nowhere), [])
            };
            qp.post_send([work.signaled()])?;
            outstanding += 1 + u64::from(is_echoed);
            sent += 1;
        }
        while let Some(done) = end.cq.poll_one() {
            if done.status != CompletionStatus::Success {
                println!("message {} of {sent} failed: {:?}", done.wr_id, done.status);
                return Ok(());
            }
            outstanding -= 1;
            let is_last = !is_echoed || done.operation == CompletionOperation::Recv;
            ended += u64::from(is_last);
        }
    }
    println!("{sent} messages, all succeeded");
    Ok(())
}
