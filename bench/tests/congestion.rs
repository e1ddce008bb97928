//! Congestion controls beside each other, on real packets.

use std::time::Duration;

use roce_bench::congestion::{Control, Fabric, Scenario};
use roce_test_macros::tier1;

#[tier1]
fn senders_share_the_link_of_a_receiver_through_each_fabric() {
    for fabric in Fabric::ALL {
        let control = Control::named("ecn").expect("it is one of them");
        let scenario = Scenario {
            warm_up: Duration::from_millis(300),
            time: Duration::from_millis(700),
            ..Scenario::new(2, control, fabric)
        };
        let outcome = scenario.run().expect("private hosts, tc and nft are there");
        let name = fabric.name();
        // Other processes may have the processors for a while.
        assert!((60.0..=200.0).contains(&outcome.goodput), "{name}: {outcome:?}");
        assert!(outcome.victim > 10.0 && outcome.victim < 60.0, "{name}: {outcome:?}");
        assert!(outcome.latency_p50 <= outcome.latency_p99, "{name}: {outcome:?}");
        assert!(outcome.marks > 0.0 && outcome.cnps <= outcome.marks, "{name}: {outcome:?}");
        assert_eq!(outcome.failed, 0.0, "{name}: {outcome:?}");
        assert!(fabric != Fabric::Lossless || outcome.drops == 0.0, "{name}: {outcome:?}");
        assert!(fabric == Fabric::Lossless || outcome.pauses == 0.0, "{name}: {outcome:?}");
    }
}
