//! Neighbours that do not answer, and what waits for them.

use roce_test_macros::tier1;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::ip::{hurry_neighbours, ip};
use roce_tests::writer::Writer;
use roce_verbs::{AddressVector, ConnectOptions, Device, DeviceConfig, Error, Gid, RouteError};

fn resolve(device: &Device, address: [u8; 4]) -> (Result<(), Error>, Duration) {
    let index = device.default_gid_index().unwrap().unwrap();
    let began = Instant::now();
    let path = device.resolve(&AddressVector::new(index, Gid::from(IpAddr::from(address))));
    (path.map(|_| ()), began.elapsed())
}

fn is_silent(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Route(RouteError::NoNeighbour { .. })))
}

#[tier1]
fn three_dead_peers_do_not_delay_a_live_one() {
    let bound = Duration::from_secs(1);
    let cable = Cable::with_mtu(1500);
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    std::thread::scope(|scope| {
        let dead = [90, 91, 92].map(|last| {
            let device = &right.device;
            scope.spawn(move || resolve(device, [10, 1, 0, last]))
        });
        // The live one is asked for while they are searched: that takes the kernel 3 s.
        std::thread::sleep(Duration::from_millis(50));
        let (live, took) = resolve(&right.device, [10, 1, 0, 1]);
        println!("a live peer beside three dead ones: bound {bound:?}, observed {took:?}");
        assert!(live.is_ok() && took < bound, "{live:?} after {took:?}");
        for dead in dead {
            let (result, took) = dead.join().unwrap();
            println!("a dead peer: bound 5s, observed {took:?}");
            assert!(is_silent(&result) && took < Duration::from_secs(5), "{result:?} {took:?}");
        }
    });
}

#[tier1]
fn writes_go_on_while_the_target_resolves_a_dead_address() {
    let bound = Duration::from_millis(500);
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let options = ConnectOptions::default();
    let writer = Writer::connect((&left, &options), (&right, &options), 64);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (result, _) = resolve(&right.device, [10, 1, 0, 99]);
            assert!(is_silent(&result), "{result:?}");
            is_over.store(true, Ordering::Release);
        });
        let longest = writer.write_while(|| !is_over.load(Ordering::Acquire));
        println!("WRITEs beside a resolution: bound {bound:?}, longest observed {longest:?}");
        assert!(longest < bound);
    });
}

#[tier1]
fn a_neighbour_that_the_kernel_reports_as_failed_fails_at_once_and_can_be_resolved_later() {
    let bound = Duration::from_secs(2);
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    // The kernel gives up after 150 ms.
    hurry_neighbours(&cable.left);
    let (result, took) = resolve(&left.device, [10, 1, 0, 3]);
    println!("a failed neighbour: bound {bound:?}, observed {took:?}");
    assert!(is_silent(&result) && took < bound, "{result:?} after {took:?}");
    // The entry that says so outlives the reason.
    ip(&cable.right, "address add 10.1.0.3/24 dev eth0");
    let (result, took) = resolve(&left.device, [10, 1, 0, 3]);
    println!("a neighbour whose entry failed earlier: bound {bound:?}, observed {took:?}");
    assert!(result.is_ok() && took < bound, "{result:?} after {took:?}");
}

#[tier1]
fn a_path_names_the_mac_address_of_its_next_hop_and_none_to_this_host() {
    let cable = Cable::with_mtu(1500);
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let index = left.device.default_gid_index().unwrap();
    let hop = |last| {
        let peer = Gid::from(IpAddr::from([10, 1, 0, last]));
        let path = left.device.resolve(&AddressVector::new(index.unwrap(), peer)).unwrap();
        path.next_hop_mac().unwrap().map(|mac| mac.0)
    };
    let interfaces = cable.right.run(Device::list).unwrap();
    let right = interfaces.iter().find(|info| info.interface.name == "eth0").unwrap();
    assert_eq!(hop(2), right.interface.mac);
    assert_eq!(hop(1), Some([0; 6]));
}
