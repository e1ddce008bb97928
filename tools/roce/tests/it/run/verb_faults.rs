//! Scripted faults of verbs, in programs that know nothing of them.

use std::path::Path;
use std::sync::OnceLock;

use roce_test_macros::tier1;

use super::{Outcome, compile, roce_run, temporary};

/// Returns the program of `verb_faults.c`.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/verb_faults.c");
        let program = temporary("verb-faults");
        let flags = ["-D_GNU_SOURCE", "-Wl,--no-as-needed", "-libverbs"];
        compile(&source, &program, &flags).expect("a C program compiles");
        program.to_str().expect("text").to_owned()
    })
}

/// Runs the program with a fault. Returns what it and the command printed.
fn run(fault: &str) -> Outcome<(Option<i32>, String, String)> {
    let line = ["--local", "1", "--prefix", "none", "--counters", "--fault", fault, "--"];
    let output = roce_run(&line).arg(program()).output()?;
    let printed = String::from_utf8(output.stdout)?;
    Ok((output.status.code(), printed, String::from_utf8(output.stderr)?))
}

/// Checks that a counter has this value.
fn check_counter(errors: &str, name: &str, value: &str) {
    let is_it = |line: &str| line.split_whitespace().eq(["[0]", "roce0", name, value]);
    assert!(errors.lines().any(is_it), "{name} {value}: {errors}");
}

#[tier1]
fn a_call_fails_with_the_error_that_a_sentence_names_and_nothing_else_does() -> Outcome {
    for (fault, printed) in [
        ("fail open-device 1 with ENODEV", "open_device: ENODEV"),
        ("fail alloc-pd 1 with ENOMEM", "alloc_pd: ENOMEM"),
        ("fail create-comp-channel 1 with EMFILE", "create_comp_channel: EMFILE"),
        ("fail reg-mr from 3 with ENOMEM", "reg_mr: ENOMEM"),
        ("fail create-cq 2 with EINVAL", "create_cq: EINVAL"),
        ("fail create-qp 2 with ENOSPC", "create_qp: ENOSPC"),
        ("fail modify-qp 1 of queue pair 2 with EPERM", "modify_qp: EPERM"),
    ] {
        let (code, out, errors) = run(fault)?;
        assert_eq!((code, out.trim()), (Some(3), printed), "{fault}: {errors}");
        let told = format!("fault 1, {fault}: happened once");
        assert!(errors.contains(&told), "{fault}: {errors}");
    }
    let (code, out, errors) = run("fail post-recv 6 with EAGAIN")?;
    assert_eq!(code, Some(0), "{errors}");
    let sent = "send 1: success\nsend 2: success\nsend 3: success\nsend 4: success\nstates 3 3\n";
    assert_eq!(out, format!("post_recv: EAGAIN\n{sent}"));
    check_counter(&errors, "fault_failed_post_recv", "1");
    Ok(())
}

#[tier1]
fn the_request_of_a_list_that_cannot_be_posted_is_named_and_those_before_it_are_sent() -> Outcome {
    let (code, out, errors) = run("fail post-send 3 of queue pair 1 with ENOMEM")?;
    assert_eq!(code, Some(0), "{errors}");
    let expected = "post_send: ENOMEM\nthe bad one is number 3\nsend 1: success\nsend 2: success\n\
                    states 3 3\n";
    assert_eq!(out, expected);
    assert!(errors.contains("ibv_post_send of queue pair 1\n"), "{errors}");
    check_counter(&errors, "fault_failed_post_send", "1");
    Ok(())
}

#[tier1]
fn a_completion_with_an_error_takes_its_queue_pair_to_error_and_flushes_what_is_behind() -> Outcome
{
    let (code, out, errors) = run("fail send-completion 2 with retry-exceeded")?;
    assert_eq!(code, Some(0), "{errors}");
    let expected = "send 1: success\nsend 2: transport retry counter exceeded\n\
                    send 3: Work Request Flushed Error\nsend 4: Work Request Flushed Error\n\
                    states 6 3\n";
    assert_eq!(out, expected, "{errors}");
    check_counter(&errors, "fault_failed_send_completion", "1");

    let (code, out, errors) = run("fail completion 1 of queue pair 2 with IBV_WC_LOC_PROT_ERR")?;
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("receive 1: local protection error"), "{out}");
    assert!(out.contains("receive 6: Work Request Flushed Error"), "{out}");
    // Requests that the queue pair has not executed by then have no response.
    assert!(out.ends_with(" 6\n"), "{out}");
    Ok(())
}

#[tier1]
fn an_event_that_is_raised_has_the_consequences_of_a_real_one() -> Outcome {
    let (code, out, errors) = run("raise IBV_EVENT_QP_FATAL at post-send 3")?;
    assert_eq!(code, Some(0), "{errors}");
    assert!(out.contains("send 4: Work Request Flushed Error"), "{out}");
    assert!(out.contains("event: local work queue catastrophic error"), "{out}");
    assert!(out.ends_with("states 6 3\n"), "{out}");
    check_counter(&errors, "fault_raised_events", "1");

    let (_, out, _) = run("raise port-error at create-qp 1")?;
    assert!(out.contains("event: port error"), "{out}");
    assert!(out.ends_with("states 3 3\n"), "{out}");
    Ok(())
}

#[tier1("perftest")]
fn users_of_unmodified_programs_see_the_faults_as_they_would_those_of_a_card() -> Outcome {
    for (fault, line, printed) in [
        (
            "fail send-completion 3 of rank 1 with retry-exceeded",
            &["ib_write_bw", "-n", "500"][..],
            "Failed status 12",
        ),
        ("fail reg-mr 1 of rank 1 with ENOMEM", &["ib_write_bw"], "Couldn't allocate MR"),
        (
            "fail recv-completion 5 of rank 1 with remote-operation",
            &["ibv_rc_pingpong", "-g", "1", "{peer?}"],
            "Failed status remote operation error",
        ),
    ] {
        let words = [&["--local", "2", "--timeout", "60", "--fault", fault, "--"], line].concat();
        let output = roce_run(&words).output()?;
        let printed_by = String::from_utf8([output.stdout, output.stderr].concat())?;
        assert!(!output.status.success(), "{printed_by}");
        assert!(printed_by.contains(printed), "{fault}: {printed_by}");
        assert!(printed_by.contains(": happened once"), "{fault}: {printed_by}");
    }
    Ok(())
}
