//! The environment of the program.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use roce_test_macros::tier1;

use super::{Copy, NOBODY, Outcome, compile, output_of, roce_run, succeeded, temporary, text};

/// The loader removes these variables from the environment of a program whose file has a capability, as `roce` may be.
#[tier1("libcap2-bin")]
fn a_capability_of_the_file_takes_no_variable_from_the_program() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let copy = Copy::new("variables")?;
    let set = |command: &mut Command| {
        command.env("LD_LIBRARY_PATH", "/first:/second").env("LD_PRELOAD", "libc.so.6");
        command.env("TMPDIR", "/tmp").env("LOCALDOMAIN", "example.org");
        command.uid(NOBODY).gid(NOBODY);
    };
    let script = "echo \"$LD_LIBRARY_PATH|$LD_PRELOAD|$TMPDIR|$LOCALDOMAIN\"";
    for is_capable in [false, true] {
        if is_capable {
            let mut given = Command::new("setcap");
            succeeded(&given.arg("cap_net_raw+ep").arg(copy.0.join("roce")).output()?)?;
        }
        for place in [&["--backend", "udp", "--"][..], &["--local", "1", "--prefix", "none", "--"]]
        {
            let mut command = copy.run(&[place, &["sh", "-c", script]].concat());
            set(&mut command);
            let seen = succeeded(&command.output()?)?;
            let fields: Vec<_> = seen.trim_end().split('|').collect();
            let [libraries, preloaded, rest @ ..] = fields.as_slice() else {
                return Err(seen.into());
            };
            assert!(libraries.ends_with(":/first:/second"), "{is_capable} {place:?}: {seen}");
            assert!(preloaded.starts_with("libc.so.6:"), "{is_capable} {place:?}: {seen}");
            assert_eq!(rest, ["/tmp", "example.org"], "{is_capable} {place:?}");
        }
    }
    Ok(())
}

/// Daemons do so.
#[tier1]
fn a_program_that_clears_its_environment_has_the_devices_and_faults_of_the_run() -> Outcome {
    let (source, program) = (temporary("cleared.c"), temporary("cleared"));
    fs::write(
        &source,
        "#include <dirent.h>\n#include <infiniband/verbs.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
         int main(void)\n{\n\
         \tclearenv();\n\
         \tstruct ibv_device **devices = ibv_get_device_list(NULL);\n\
         \tprintf(\"%s\\n\", ibv_get_device_name(devices[0]));\n\
         \tprintf(\"%s\\n\", ibv_open_device(devices[0]) ? \"opens\" : \"fails\");\n\
         \tprintf(\"%s\\n\", opendir(\"/sys/class/infiniband/named7\") ? \"files\" : \"no files\");\n\
         \treturn ibv_open_device(devices[0]) == NULL;\n}\n",
    )?;
    compile(&source, &program, &["-D_GNU_SOURCE", "-Wl,--no-as-needed", "-libverbs"])?;
    for view in ["mount", "preload"] {
        let seen = output_of(&[
            "--local",
            "1",
            "--prefix",
            "none",
            "--view",
            view,
            "--dev",
            "named7=*",
            "--fault",
            "fail open-device 1 with ENOMEM",
            "--",
            text(&program),
        ])?;
        assert_eq!(seen, "named7\nfails\nfiles\n", "{view}");
    }
    Ok(())
}

/// One variable holds 128 KiB at most.
#[tier1]
fn a_file_of_faults_may_be_longer_than_a_variable() -> Outcome {
    let file = temporary("many-faults.toml");
    let many = (1..9000).map(|number| format!("\"drop request {number}\", "));
    let faults = many.chain(["\"fail open-device 1 with ENOMEM\"".to_owned()]);
    let faults: String = faults.collect();
    assert!(faults.len() > 128 << 10);
    fs::write(&file, format!("faults = [{faults}]\n"))?;
    let output =
        roce_run(&["--local", "1", "--faults", text(&file), "--", "ibv_devinfo"]).output()?;
    let words = String::from_utf8(output.stderr)?;
    assert!(words.contains("open-device fails with ENOMEM"), "{words}");
    Ok(())
}

/// Programs find out their own address so; no packet is sent.
#[tier1]
fn a_private_host_knows_its_address_towards_any_other() -> Outcome {
    let script = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
                  s.connect(('192.0.2.1', 53)); print(s.getsockname()[0])";
    for (ranks, last) in [("1", "[0] 10.0.0.1\n"), ("2", "[1] 10.0.0.2\n")] {
        let seen =
            output_of(&["--local", ranks, "--", "env", "RANK={rank}", "python3", "-c", script])?;
        assert!(seen.contains(last), "{seen}");
    }
    Ok(())
}

#[tier1("ibverbs-utils")]
fn devices_open_where_the_folder_of_the_run_is_missing_and_a_line_says_so() -> Outcome {
    let script = "ROCE_RUN=/missing exec ibv_devinfo -d roce0";
    for view in ["mount", "preload"] {
        let line = ["--local", "1", "--view", view, "--prefix", "none", "--", "sh", "-c", script];
        let output = roce_run(&line).output()?;
        let words = String::from_utf8(output.stderr)?;
        let told = "roce: ROCE_RUN: no plan of a run in /missing: No such file or directory (os error 2); \
                    devices open without it\n";
        assert_eq!((output.status.code(), words.as_str()), (Some(0), told), "{view}");
    }
    Ok(())
}
