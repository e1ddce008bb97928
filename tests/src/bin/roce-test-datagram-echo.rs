//! A server for the tests: sends every datagram back to its sender.
//!
//! `roce-test-datagram-echo INTERFACE ADDRESS:PORT [general-services]`; says `ready` when it
//! listens, tells its clients its queue pair by TCP, and serves until its standard input ends or it
//! is killed.

use std::error::Error;
use std::net::TcpListener;
use std::time::Duration;

use roce_tests::datagrams::{DatagramEnd, Q_KEY};
use roce_tests::fixtures::{TestDevice, device_config};
use roce_verbs::{CompletionOperation, Device, SendOperation, SendWr, exchange};

/// Receives kept posted.
const DEPTH: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("roce-test-datagram-echo INTERFACE ADDRESS:PORT [general-services]".into());
    };
    let listener = TcpListener::bind(address)?;
    let end = TestDevice::of(Device::open(&interface, device_config())?);
    let datagrams = match arguments.next() {
        Some(_) => DatagramEnd::general_services(&end, DEPTH),
        None => DatagramEnd::new(&end, DEPTH),
    };
    let mine = datagrams.qp.dest(None)?;
    std::thread::spawn(move || {
        loop {
            let told = exchange::accept(&listener, |_client| Ok::<_, std::fmt::Error>(mine));
            if let Err(error) = told {
                eprintln!("a client did not get through: {error}");
            }
        }
    });
    std::thread::spawn(|| {
        // The test holds the other end; when it is gone, so is this process.
        let _ended = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    (0..DEPTH).for_each(|slot| datagrams.post_receive(slot));
    println!("ready");
    loop {
        let Some(done) = end.cq.spin_wait(Duration::from_millis(1)) else { continue };
        let slot = done.wr_id as usize;
        if done.operation == CompletionOperation::Send {
            datagrams.post_receive(slot);
            continue;
        }
        let sender = end.pd.create_ah_from_completion(&done, &datagrams.grh(slot))?;
        let qpn = done.source_qpn.ok_or("a datagram has a source")?;
        let piece = datagrams.payload(slot, &done);
        let echo = SendWr::new(done.wr_id, SendOperation::send(), [piece]).signaled();
        datagrams.qp.post_send_to([echo], &sender, qpn, Q_KEY)?;
    }
}
