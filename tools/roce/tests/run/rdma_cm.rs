//! Programs that use rdma_cm.

use roce_test_macros::tier1;

use super::{Outcome, roce_run};

/// perftest's programs load librdmacm in any case, and use it with `-R`.
#[tier1("perftest")]
fn a_program_that_uses_rdma_cm_is_followed_by_what_to_do_and_one_that_only_loads_it_is_not()
-> Outcome {
    for view in ["mount", "preload"] {
        for (place, line, is_told) in [
            ("2", &["ib_write_bw", "-R"][..], true),
            ("1", &["sh", "-c", "ib_write_bw -R"], true),
            ("1", &["sh", "-c", "ib_write_bw -R; true"], false),
            ("1", &["ib_write_bw", "--no-such-option"], false),
            ("1", &["ls", "-l", "/dev/infiniband/rdma_cm", "/no/such"], false),
        ] {
            let options = ["--local", place, "--view", view, "--"];
            let output = roce_run(&[&options[..], line].concat()).output()?;
            let words = String::from_utf8(output.stderr)?;
            let told = words
                .lines()
                .filter(|line| line.starts_with("roce: the program tried to use rdma_cm"));
            assert_eq!(told.count(), usize::from(is_told), "{view} {line:?}: {words}");
            assert!(!is_told || words.contains("without -R"), "{words}");
        }
    }
    Ok(())
}
