//! Programs that use rdma_cm.

use roce_test_macros::tier1;

use super::{Outcome, output_of, roce_run};

/// A server, and a client that checks what comes back.
const PING: &str =
    "a={peer?}; if [ -z $a ]; then exec rping -s -C 3; fi; exec rping -c -a $a -V -v -C 3";

/// Runs a program, and again where it fails by itself, as these words show: beside other load three times in a row.
fn output_beyond(own_failure: &str, line: &[&str]) -> Outcome<String> {
    for _ in 0..7 {
        match output_of(line) {
            Err(error) if error.to_string().contains(own_failure) => {}
            output => return output,
        }
    }
    output_of(line)
}

#[tier1("rdmacm-utils")]
fn rping_connects_to_a_server_that_listens_by_rdma_cm_alone() -> Outcome {
    for view in ["mount", "preload", "none"] {
        let options = ["--local", "2", "--view", view, "--timeout", "60", "--"];
        let line = [&options[..], &["sh", "-c", PING]].concat();
        // Not the status: rping fails where its main thread closes the channel before its other thread
        // waits on it again.
        let output = roce_run(&line).output()?;
        let (text, errors) = (String::from_utf8(output.stdout)?, output.stderr);
        let told = String::from_utf8_lossy(&errors);
        assert!(text.contains("[1] ping data: rdma-ping-2"), "{view}: {text} {told}");
    }
    Ok(())
}

/// The file of the view is no device, so that librdmacm refuses it at once.
#[tier1("rdmacm-utils")]
fn a_program_without_the_preloaded_library_fails_at_once() -> Outcome {
    for view in ["mount", "none"] {
        let line = ["env", "-u", "LD_PRELOAD", "rping", "-s"];
        let options = ["--local", "1", "--view", view, "--timeout", "60", "--"];
        let output = roce_run(&[&options[..], &line].concat()).output()?;
        let words = String::from_utf8(output.stderr)?;
        assert!(words.contains("event channel"), "{view}: {words}");
        assert!(!words.contains("--timeout"), "{view}: {words}");
    }
    Ok(())
}

#[tier1("rdmacm-utils")]
fn a_peer_learns_at_once_that_a_program_has_ended_without_closing_its_connection() -> Outcome {
    // perftest's client waits until the server has ended, which only exits.
    // Its client may connect a second time before its server listens again.
    let line = ["--local", "2", "--timeout", "60", "--", "ib_atomic_lat", "-R", "-n", "20"];
    let output = output_beyond("RDMA_CM_EVENT_REJECTED; error: 8", &line)?;
    assert!(output.contains("t_avg[usec]"), "{output}");
    Ok(())
}
