//! Memory: what a connected queue pair takes that has nothing to do.

use std::net::IpAddr;

use roce_simnet::ConnectOptions;
use roce_transport::{CqHandle, Endpoint, EndpointConfig, Instant, PathAttributes, PathHandle};
use roce_wire::{PathMtu, Qpn};

/// Makes queue pairs of these numbers and connects each to a peer of the same number.
fn connect(endpoint: &mut Endpoint, numbers: std::ops::Range<u32>) {
    let options = ConnectOptions { path_mtu: PathMtu::B4096, ..ConnectOptions::default() };
    let [local, remote] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
    for number in numbers {
        // Spread as those that a driver draws.
        let qpn = Qpn::new(0x12_3000 + number).unwrap();
        endpoint.create_qp(qpn, options.init(CqHandle(1), CqHandle(1))).unwrap();
        let path =
            PathAttributes { handle: PathHandle(number.into()), local, remote, max_rate: None };
        for step in &options.transitions(0, path, qpn) {
            endpoint.modify_qp(Instant::default(), qpn, step).unwrap();
        }
    }
}

/// The queues of work requests take memory only as they fill, so nothing of them is in here;
/// the tables that find a queue pair are.
#[test]
fn a_connected_queue_pair_takes_at_most_4_kib_be_there_a_thousand_or_four() {
    let mut endpoint = Endpoint::new(EndpointConfig::default());
    let mut connected = 0;
    let mut held = 0;
    for count in [1000, 4000] {
        let info = allocation_counter::measure(|| connect(&mut endpoint, connected..count));
        held += info.bytes_current;
        connected = count;
        let each = held / i64::from(count);
        println!("{count} queue pairs: {each} bytes each");
        assert!((1..=4096).contains(&each), "{each} bytes for each of {count} queue pairs");
    }
    assert!(endpoint.query_qp(Qpn::new(0x12_3000 + 3999).unwrap()).is_some());
}
