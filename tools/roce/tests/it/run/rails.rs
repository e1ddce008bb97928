//! Several rails: a network each, with an interface of every host.

use std::process::Command;

use roce_test_macros::tier1;

use super::{Outcome, output_of, roce, roce_run, succeeded};

#[tier1]
fn each_rail_is_a_network_with_a_device_and_an_address_of_every_host() -> Outcome {
    let script = "echo {interface:1} {address:1} {peer:1} $(cat /sys/class/infiniband/roce1/ports/1/gids/1) \
                  $(ls /sys/class/infiniband/roce1/device/net)";
    for (ranks, switch) in [("2", None), ("3", None), ("2", Some("rate=1G"))] {
        let switch: Vec<&str> = switch.into_iter().flat_map(|spec| ["--switch", spec]).collect();
        let line = [&["--local", ranks, "--rails", "2"], &switch[..], &["--", "sh", "-c", script]];
        let text = output_of(&line.concat())?;
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:010";
        for (rank, peer) in [(0, 2), (1, 1)] {
            let number = rank + 1;
            let told = format!("[{rank}] eth1 10.0.1.{number} 10.0.1.{peer} {gid}{number} eth1\n");
            assert!(text.contains(&told), "{told:?} in {text}");
        }
    }
    Ok(())
}

#[tier1("perftest")]
fn a_program_uses_the_rail_of_the_device_that_it_names() -> Outcome {
    let line = "--local 2 --rails 2 --counters -- ib_write_bw -d roce1 -x 1 -n 500 {peer?:1}";
    let output = roce_run(&line.split(' ').collect::<Vec<_>>()).output()?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    succeeded(&output)?;
    assert!(told.contains("[1] roce1 sent_pkts") && !told.contains("roce0"), "{told}");
    Ok(())
}

#[tier1]
fn perf_and_pingpong_use_the_rail_of_the_interface_that_they_name() -> Outcome {
    for (line, told) in [
        (
            "perf write bw --local --rails 2 -d eth1 -n 10",
            "GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:01:01",
        ),
        ("pingpong --local --rails 3 -d eth2 -n 10", "GID ::ffff:10.0.2.1"),
        ("pingpong --local --rails 2 --switch rate=1G -d eth1 --cm -n 10", "GID ::ffff:10.0.1.1"),
        ("pingpong --local --rails 2 -n 10", "GID ::ffff:10.0.0.1"),
    ] {
        let text = succeeded(&Command::new(roce()).args(line.split(' ')).output()?)?;
        assert!(text.contains(told), "{line}: {text}");
    }
    Ok(())
}

#[tier1]
fn a_placeholder_of_a_rail_that_is_missing_is_refused() -> Outcome {
    let output = roce_run(&["--local", "2", "--", "echo", "{peer:1}"]).output()?;
    let told = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(told, "roce: {peer:1}: the run has rail 0 (--rails 1)\n");
    Ok(())
}
