//! Frames of a fast sender leave a switch at the rate of its ports, and marked: the time is a number here, and no
//! interface is needed.

use std::time::Duration;

use roce_switch::{Forwarder, SwitchSettings};

const FRAMES: usize = 20;

fn main() {
    let settings = SwitchSettings { bits_per_sec: 8_000_000, ..SwitchSettings::default() };
    let mut switch = Forwarder::new(&settings, 2);
    let mut frame = vec![0; 976];
    frame[..6].fill(0xff); // for all
    for _ in 0..FRAMES {
        switch.receive(0, &frame);
    }

    // 976 bytes and 24 beside the frame take 1 ms on each of two lines.
    let mut left = Vec::new();
    for millisecond in 1..=FRAMES as u64 + 2 {
        let now = Duration::from_millis(millisecond) + Duration::from_micros(10);
        switch.advance(now, &mut |port, frame| left.push((millisecond, port, frame.len())));
    }
    println!("the first and the last frame: {:?}, {:?}", left.first(), left.last());
    assert_eq!(left.len(), FRAMES);
    assert_eq!(left[0], (2, 1, 976));
    assert!(left.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1), "one frame a millisecond");
}
