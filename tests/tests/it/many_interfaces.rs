//! A host with hundreds of interfaces and neighbours that change all the time.

use roce_test_macros::tier1;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use roce_tests::fixtures::{Cable, TestDevice};
use roce_tests::ip::{batch, wait_until};
use roce_tests::writer::{Writer, patient};
use roce_verbs::{CompletionStatus, DeviceConfig};

/// Pairs of interfaces beside the one that carries RoCE.
const PAIRS: usize = 400;

/// In builds with debug assertions a question to the kernel under the engine's lock panics. In the
/// driver thread that would end the WRITEs; in the monitor thread, that the device follows its
/// interface.
#[tier1]
fn nothing_is_asked_under_the_engines_lock_while_neighbours_and_interfaces_change() {
    let cable = Cable::with_mtu(1500);
    let pairs = |what: fn(usize) -> String| (0..PAIRS).map(what).collect::<String>();
    batch(&cable.left, &pairs(|n| format!("link add d{n} type veth peer name e{n}\n")));
    let left = TestDevice::on(&cable.left, DeviceConfig::default());
    let right = TestDevice::on(&cable.right, DeviceConfig::default());
    let writer = Writer::connect((&left, &patient()), (&right, &patient()), 64);
    let is_over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            let mut round = 0;
            while began.elapsed() < Duration::from_secs(2) {
                round += 1;
                // On the device's own link, and on the others.
                let mac = format!("02:00:00:00:00:{:02x}", round % 256);
                let commands: String = (100..200)
                    .map(|last| format!("neighbour replace 10.1.0.{last} lladdr {mac} dev eth0\n"))
                    .chain((0..20).map(|n| {
                        let (n, way) = (n + 20 * (round % 20), ["up", "down"][round / 20 % 2]);
                        format!("link set d{n} {way}\n")
                    }))
                    .collect();
                batch(&cable.left, &commands);
                std::thread::sleep(Duration::from_millis(20));
            }
            is_over.store(true, Ordering::Release);
        });
        let mut times = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            let (status, took) = writer.write(64);
            assert_eq!(status, CompletionStatus::Success);
            times.push(took);
            std::thread::sleep(Duration::from_micros(200));
        }
        times
    });
    cable.left.set_mtu("eth0", 1400).unwrap();
    let followed = wait_until("the device follows its interface", || {
        left.device.port().unwrap().netdev_mtu == 1400
    });
    println!("a changed MTU after the churn: bound 20s, observed {followed:?}");
    let mut times = times;
    times.sort_unstable();
    println!(
        "{} WRITEs beside {} interfaces: median {:?}, 99 % {:?}, longest {:?}",
        times.len(),
        2 * PAIRS,
        times[times.len() / 2],
        times[times.len() * 99 / 100],
        times[times.len() - 1]
    );
}
