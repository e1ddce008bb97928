//! How long connection management waits, as devices are configured and as the environment says.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use roce_test_macros::tier1;
use roce_tests::fixtures::Cable;
use roce_tests::verbs_program::roce_run;
use roce_verbs::cm::{
    ConnectionParameters, EventChannel, EventKind, PortSpace, Timing, Unreachable,
};
use roce_verbs::{DeviceConfig, Qpn};

/// Far beyond what the tests configure, and far below the 98 s of rdma_cm.
const LIMIT: Duration = Duration::from_secs(20);

#[tier1]
fn a_peer_that_is_silent_is_unreachable_after_the_configured_repetitions() {
    let cable = Cable::with_mtu(1500);
    let connection_timing: Timing =
        "response_timeout=14,packet_life_time=12,max_retries=2".parse().unwrap();
    let config = DeviceConfig { connection_timing, ..DeviceConfig::default() };
    let channel = EventChannel::new(config).unwrap();
    let event = || channel.next(Some(LIMIT)).unwrap().expect("an event within the time allowed");
    // The host is there, and its kernel resolves the address; no process has a device.
    for (space, every) in [(PortSpace::TCP, 64 + 2 * 16), (PortSpace::UDP, 64)] {
        let id = channel.create_id(space, 0).unwrap();
        let address: SocketAddr = "10.1.0.2:7174".parse().unwrap();
        cable.left.run(|| id.resolve_addr(None, address, LIMIT)).unwrap();
        assert_eq!(event().kind, EventKind::AddressResolved);
        id.resolve_route().unwrap();
        assert_eq!(event().kind, EventKind::RouteResolved);
        let device = id.device().unwrap();
        let resent = device.counter("cm_resent").unwrap();
        let start = Instant::now();
        id.connect(&ConnectionParameters::new(Qpn::new(0x123).unwrap())).unwrap();
        assert_eq!(event().kind, EventKind::Unreachable(Unreachable::TimedOut));
        assert!(start.elapsed() >= Duration::from_millis(3 * every));
        assert_eq!(device.counter("cm_resent").unwrap() - resent, 2);
    }
}

#[tier1("rdmacm-utils")]
fn a_program_on_librdmacm_waits_as_the_environment_says() {
    let cable = Cable::with_mtu(1500);
    let mut command = roce_run();
    command.args(["--", "rping", "-c", "-a", "10.1.0.2", "-C", "1"]);
    command.env("ROCE_CM", "response_timeout=10,packet_life_time=8,max_retries=1");
    let start = Instant::now();
    let output = cable.left.run(|| command.output()).unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("RDMA_CM_EVENT_UNREACHABLE"), "{text}");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

#[tier1]
fn a_wrong_variable_is_refused_before_the_program_starts() {
    let cable = Cable::with_mtu(1500);
    for (value, message) in [
        ("response_timeout=40", "ROCE_CM: response_timeout=40 is not a code of a time: 0 to 31"),
        ("retries=3", "ROCE_CM: there is no \"retries\"; the names are response_timeout,"),
        ("", "ROCE_CM: \"\" is not NAME=VALUE; the names are response_timeout,"),
    ] {
        let mut command = roce_run();
        command.args(["--", "/bin/echo", "started"]).env("ROCE_CM", value);
        let output = cable.left.run(|| command.output()).unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty(), "{value}: {words}");
        assert!(words.contains(message), "{value}: {words}");
    }
}
