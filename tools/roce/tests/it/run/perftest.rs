//! Unmodified programs in private hosts, with what `roce run` adds to them.

use std::fs;

use roce_test_macros::tier1;

use super::{Outcome, output_of, roce_run, succeeded, temporary};

#[tier1("perftest")]
fn the_line_of_the_readme_shows_a_server_and_its_client() -> Outcome {
    let text = output_of(&["--local", "2", "--", "ib_write_bw"])?;
    for rank in ["[0]", "[1]"] {
        assert!(text.contains(&format!("{rank}  65536      5000 ")), "{text}");
    }
    Ok(())
}

#[tier1("perftest")]
fn counters_of_the_view_grow_while_a_program_sends() -> Outcome {
    // Each end waits until its view shows packets.
    let script = "ib_write_bw -D 3 $1 > /dev/null & for i in $(seq 300); do \
                  count=$(cat /sys/class/infiniband/roce0/ports/1/counters/port_rcv_packets); \
                  [ $count -gt 0 ] && echo counted && break; sleep 0.01; done; wait $!";
    for view in ["mount", "preload"] {
        let line = ["--local", "2", "--view", view, "--", "sh", "-c", script, "sh", "{peer?}"];
        let text = output_of(&line)?;
        assert_eq!(text.matches("counted").count(), 2, "{view}: {text}");
    }
    Ok(())
}

#[tier1("perftest")]
fn a_capture_faults_and_counters_are_those_of_the_foreign_program() -> Outcome {
    let file = temporary("foreign.pcapng");
    let name = file.to_str().ok_or("a path that is text")?;
    let _old = fs::remove_file(&file);
    let line = ["--local", "2", "--counters", "--pcap", name, "--loss", "2%", "--seed", "3", "--"];
    let output =
        roce_run(&[&line[..], &["ib_write_bw", "-n", "300", "-s", "4096"]].concat()).output()?;
    let text = succeeded(&output)?;
    assert!(text.contains("[1]  4096       300 "), "{text}");
    let counters = String::from_utf8(output.stderr)?;
    assert!(counters.contains("[1] roce0 resent_pkts"), "{counters}");
    assert!(counters.contains("[1] roce0 fault_sent_dropped"), "{counters}");
    let capture = fs::read(&file)?;
    assert_eq!(capture[..4], [0x0a, 0x0d, 0x0d, 0x0a], "it is not pcapng");
    assert!(capture.len() > 300 * 4096, "{} bytes", capture.len());
    Ok(())
}

/// What limits a foreign program's senders: under `loss` nothing reacts to notifications.
#[tier1("perftest")]
fn congestion_control_is_chosen_for_a_foreign_program() -> Outcome {
    for (control, counter) in
        [("loss", "rp_cnp_ignored"), ("dcqcn,rp_min_rate=100", "rp_cnp_handled")]
    {
        let program = ["ib_write_bw", "-n", "100", "--tclass", "2"];
        let line = ["--local", "2", "--counters", "--mark", "20%", "--cc", control, "--"];
        let output = roce_run(&line).args(program).output()?;
        succeeded(&output)?;
        let counters = String::from_utf8_lossy(&output.stderr);
        assert!(counters.contains(counter), "{control}: {counters}");
    }
    let refused = roce_run(&["--cc", "cubic", "--", "true"]).output()?;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("use loss, ecn, dcqcn or swift"));
    Ok(())
}

/// With one channel for both queues the program takes the event of a receive for that of its request
/// once an ACK is late, and sends on without polling.
#[tier1("perftest")]
fn a_program_that_takes_the_event_of_another_queue_for_its_own_survives_a_lost_packet() -> Outcome {
    for lost in ["drop ack 3 of rank 1", "drop request 3 of rank 1"] {
        let line = ["--local", "2", "--fault", lost, "--", "ib_send_lat", "-e", "-n", "50"];
        let text = output_of(&line)?;
        for rank in ["[0]", "[1]"] {
            assert!(text.contains(&format!("{rank}  2       50 ")), "{lost}: {text}");
        }
    }
    Ok(())
}
