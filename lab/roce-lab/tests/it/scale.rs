//! Rings at scale: the results are right, and the times lie where the model says.

use std::time::Duration;

use roce_lab::{Scale, plot};

#[test]
fn rings_of_every_size_reduce_to_the_expected_sums() {
    for ranks in [2, 3, 8, 17] {
        for bytes in [0, 4, 4096, 4100, 70_000, 1 << 20] {
            let scale = Scale { ranks, bytes, ..Scale::default() };
            let result = scale.simulate().unwrap();
            assert_eq!(result.wrong, Some(0), "{ranks} ranks, {bytes} bytes");
            assert_eq!(result.resent, 0, "nothing is lost on this fabric");
        }
    }
}

#[test]
fn the_time_does_not_depend_on_keeping_data() {
    for bytes in [64, 1 << 20] {
        let kept = Scale { ranks: 5, bytes, ..Scale::default() }.simulate().unwrap();
        let unkept = Scale { keep_data: false, ..kept.scale }.simulate().unwrap();
        assert_eq!((kept.time, kept.packets), (unkept.time, unkept.packets));
        assert_eq!(unkept.wrong, None);
    }
}

#[test]
fn no_ring_is_faster_than_its_bound() {
    for (ranks, bytes) in [(2, 1 << 20), (4, 4 << 20), (16, 1 << 20)] {
        let scale = Scale { ranks, bytes, ..Scale::default() };
        let time = scale.simulate().unwrap().time.as_secs_f64();
        let share = 2.0 * (ranks as f64 - 1.0) / ranks as f64;
        assert!(time > share * bytes as f64 * 8.0 / 100e9, "{ranks} ranks, {bytes} bytes");
    }
}

#[test]
fn alpha_is_the_time_of_an_empty_message() {
    // Two ranks and four bytes: one hop of the small way, and its acknowledgement, which is as
    // long as two links and 62 bytes, but for the payload of four.
    let scale = Scale { ranks: 2, bytes: 4, ..Scale::default() };
    let time = scale.simulate().unwrap().time;
    let acknowledgement = 2 * (scale.delay + Duration::from_nanos(7));
    let payload = Duration::from_nanos(2);
    assert!(time >= scale.alpha() + acknowledgement, "{time:?}");
    assert!(time <= scale.alpha() + acknowledgement + payload, "{time:?}");
}

#[test]
fn a_plot_needs_two_sizes_and_labels_every_line() {
    let simulate = |ranks, bytes| Scale { ranks, bytes, ..Scale::default() }.simulate().unwrap();
    let some = [simulate(2, 4096), simulate(2, 65536), simulate(4, 4096), simulate(4, 65536)];
    let svg = plot(&some).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("2 ranks") && svg.contains("4 ranks"));
    assert!(plot(&some[..1]).is_err() && plot(&[]).is_err());
}
