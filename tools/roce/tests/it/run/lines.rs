//! Lines of ranks, and their order.

use roce_test_macros::tier1;

use super::{Outcome, output_of, roce_run};

/// A server without arguments, a client with the server's address.
const PAIR: &str = "\
import socket, sys, time
if len(sys.argv) > 1:
    peer = socket.create_connection((sys.argv[1], 18515))
    print('received', peer.recv(64).decode())
else:
    time.sleep(0.3)
    server = socket.create_server(('', 18515))
    peer, _ = server.accept()
    peer.send(b'hello')
    print('sent')
";

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[tier1]
fn a_client_starts_as_soon_as_its_server_listens() -> Outcome {
    let plain = output_of(&["--local", "2", "--", "python3", "-c", PAIR])?;
    assert_eq!(sorted(&plain), ["[0] sent", "[1] received hello"]);
    let placed = output_of(&["--local", "2", "--", "python3", "-c", PAIR, "{peer?}"])?;
    assert_eq!(sorted(&placed), ["[0] sent", "[1] received hello"]);
    Ok(())
}

#[tier1]
fn placeholders_are_replaced_for_each_rank() -> Outcome {
    let text = output_of(&["--local", "3", "--", "echo", "{rank}/{size}", "{address}", "{peer}"])?;
    let expected =
        ["[0] 0/3 10.0.0.1 10.0.0.2", "[1] 1/3 10.0.0.2 10.0.0.1", "[2] 2/3 10.0.0.3 10.0.0.1"];
    assert_eq!(sorted(&text), expected);
    Ok(())
}

#[tier1]
fn with_torchrun_the_ranks_get_its_variables_and_no_argument() -> Outcome {
    let line = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $#";
    let text = output_of(&["--local", "2", "--torchrun", "--", "sh", "-c", line])?;
    let expected = ["[0] 0/2 0/1 10.0.0.1:29500 0", "[1] 1/2 0/1 10.0.0.1:29500 0"];
    assert_eq!(sorted(&text), expected);
    Ok(())
}

#[tier1]
fn a_server_that_never_ends_is_stopped_after_its_clients() -> Outcome {
    let server = "import socket,sys,time
if sys.argv[1:]: print(socket.create_connection((sys.argv[1], 7)).fileno() > 0)
else:
    s = socket.create_server(('', 7))
    while True: time.sleep(1)";
    let text = output_of(&["--local", "2", "--", "python3", "-c", server])?;
    assert_eq!(text, "[1] True\n");
    Ok(())
}

#[tier1]
fn without_a_prefix_the_output_is_the_program_s_byte_by_byte() -> Outcome {
    let script = r"printf 'a\000\377\r{rank}'; printf e{rank} >&2";
    for ranks in ["1", "2"] {
        let line = ["--local", ranks, "--prefix", "none", "--", "sh", "-c", script];
        let output = roce_run(&line).output()?;
        assert!(output.status.success());
        let each: Vec<&[u8]> = vec![b"a\0\xff\r0", b"a\0\xff\r1"];
        let count: usize = ranks.parse()?;
        let mut found: Vec<&[u8]> = output.stdout.chunks(5).collect();
        found.sort_unstable();
        assert_eq!(found, each[..count]);
        assert_eq!(output.stderr.len(), 2 * count);
    }
    Ok(())
}

#[tier1]
fn the_first_failure_is_the_exit_code() -> Outcome {
    let code = |line: &[&str]| -> Outcome<(Option<i32>, String)> {
        let output = roce_run(line).output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    let failing = ["--local", "3", "--", "sh", "-c", "test {rank} != 1 || exit 5; sleep 60"];
    let stopped = "roce: rank 1 ended with code 5, so the others were stopped\n";
    assert_eq!(code(&failing)?, (Some(5), stopped.to_owned()));
    // A server that ends before it listens ends the run.
    let (ended, words) = code(&["--local", "2", "--", "true"])?;
    assert_eq!((ended, words.lines().count()), (Some(125), 1), "{words}");
    assert!(words.contains("before it listened") && words.contains("--local 1"), "{words}");
    let started = ["--local", "2", "--", "sh", "-c", ":", "{rank}"];
    assert_eq!(code(&started)?, (Some(0), String::new()), "as the message says");
    let (failed, words) = code(&["--local", "2", "--", "false"])?;
    assert_eq!((failed, words.lines().count()), (Some(1), 1), "{words}");
    assert!(words.contains("rank 0 ended with code 1 before it listened"), "{words}");
    Ok(())
}

#[tier1]
fn a_program_that_crashes_is_named_with_its_signal() -> Outcome {
    let crash = ["--", "sh", "-c", "kill -SEGV $$", "{rank}"];
    for (place, name) in [(&["--local", "1"][..], "rank 0"), (&[], "sh")] {
        let output = roce_run(&[place, &crash].concat()).output()?;
        let words = String::from_utf8(output.stderr)?;
        assert_eq!(words, format!("roce: {name} was ended by signal 11 (SIGSEGV)\n"));
        assert_eq!(output.status.code(), Some(139));
    }
    Ok(())
}

#[tier1]
fn a_line_that_cannot_run_is_explained_in_one_line() -> Outcome {
    for (line, code, word) in [
        (&["--", "ib_no_such_test"][..], 127, "perftest"),
        (&["--", "/etc/passwd"], 126, "not an executable"),
        (&["--dev", "a=nosuch0", "--", "true"], 125, "nosuch0"),
        (&["--dev", "nosuch0", "--", "true"], 125, "NAME=INTERFACE"),
        (
            &["--local", "2", "--", "echo", "{pear}"],
            125,
            "{pear} is no placeholder; there are {rank}",
        ),
        (&["--local", "2", "--los", "1%", "--", "true"], 125, "a similar option of roce is --loss"),
    ] {
        let output = roce_run(line).output()?;
        let words = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code), "{words}");
        assert!(words.contains(word) && words.lines().count() == 1, "{words}");
    }
    Ok(())
}
