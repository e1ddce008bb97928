//! Posts a burst of requests one by one and ends at once, for the tests of what must have left.
//!
//! `roce-test-burst INTERFACE POSTS ADDRESS KEY`. Prints its destination, reads its peer's, writes the
//! numbers 1 to `POSTS` to the peer's memory, one with each call, and exits.

use std::error::Error;
use std::io::BufRead;

use roce_tests::fixtures::{TestDevice, device_config};
use roce_verbs::{ConnectOptions, Device, RemoteAddr, SendOperation, SendWr};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, posts, address, key] = &arguments[..] else {
        return Err("roce-test-burst INTERFACE POSTS ADDRESS KEY".into());
    };
    let remote = RemoteAddr { addr: address.parse()?, rkey: key.parse()? };
    // Nothing is dropped: the process owns it until its end, as a static would.
    let end = Box::leak(Box::new(TestDevice::of(Device::open(interface, device_config())?)));
    let qp = Box::leak(Box::new(end.queue_pair()));
    println!("{}", qp.dest(None)?);
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    qp.connect(&line.trim().parse()?, &ConnectOptions::default())?;
    for number in 1..=posts.parse::<u64>()? {
        let bytes = number.to_ne_bytes();
        qp.post_send([SendWr::inline(number, SendOperation::write(remote), &bytes)])?;
    }
    std::process::exit(0);
}
