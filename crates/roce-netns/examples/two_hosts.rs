//! Two hosts that exist only while this program runs: one sends a datagram to the other, and nothing of it is on the
//! machine's own network.

use std::error::Error;
use std::net::UdpSocket;
use std::time::Duration;

use roce_netns::{Link, VirtualNetwork};

fn main() -> Result<(), Box<dyn Error>> {
    // Before any thread exists: without root, namespaces need one of users.
    roce_netns::enter_user_namespace_if_needed()?;
    let network = VirtualNetwork::new()?;
    let (left, right) = (network.host("left")?, network.host("right")?);
    network.veth((&left, "eth0"), (&right, "eth0"), Link { mtu: 4200 })?;
    left.address("eth0", "10.0.0.1/24".parse()?)?;
    right.address("eth0", "10.0.0.2/24".parse()?)?;

    // A socket belongs to the host in which it was made.
    let server = right.run(|| UdpSocket::bind("10.0.0.2:7"))?;
    server.set_read_timeout(Some(Duration::from_secs(10)))?;
    left.run(|| UdpSocket::bind("10.0.0.1:0")?.send_to(b"hello", "10.0.0.2:7"))?;
    let mut bytes = [0; 16];
    let (len, from) = server.recv_from(&mut bytes)?;
    assert_eq!((&bytes[..len], from.ip()), (&b"hello"[..], [10, 0, 0, 1].into()));
    assert!(UdpSocket::bind("10.0.0.2:7").is_err(), "the machine has no such address");
    println!("{} bytes from {from}", len);
    Ok(())
}
