//! Devices that lack something, and calls about devices that fail, as sentences say.

use std::path::Path;

use roce_test_macros::tier1;

use super::{Outcome, compile, roce_run, succeeded, temporary};

/// What `limited.c` prints on a device that lacks nothing.
const USUAL: &str = "\
query_device: ok
srq yes, atomics yes, sge 32, rd_atom 128 128
query_port: ok
width 1, speed 8
query_gid: ok
resize_cq: ok
create_srq: ok
four pieces: ok
64 bytes inline: ok
inline some
four READs: ok
atomic: ok
dereg_mr: ok
dealloc_pd: ok
";

#[tier1]
fn a_device_lacks_what_a_sentence_says_and_nothing_else() -> Outcome {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/run/limited.c");
    let program = temporary("limited");
    compile(&source, &program, &["-D_GNU_SOURCE", "-Wl,--no-as-needed", "-libverbs"])?;
    for (sentence, changes) in [
        (
            "device has no srq",
            &[("srq yes", "srq no"), ("create_srq: ok", "create_srq: EOPNOTSUPP")][..],
        ),
        (
            "device has no atomics",
            &[("atomics yes", "atomics no"), ("atomic: ok", "atomic: EINVAL")],
        ),
        (
            "device has max-inline 0",
            &[("64 bytes inline: ok", "64 bytes inline: EINVAL"), ("inline some", "inline none")],
        ),
        (
            "device has max-sge 1",
            &[("sge 32", "sge 1"), ("four pieces: ok", "four pieces: EINVAL")],
        ),
        (
            "device of rank 0 has max-qp-rd-atom 1",
            &[("128 128", "1 1"), ("four READs: ok", "four READs: EINVAL")],
        ),
        ("device has port-speed 200000", &[("width 1, speed 8", "width 2, speed 32")]),
        ("device has port-speed 1000", &[("width 1, speed 8", "width 1, speed 1")]),
        (
            "fail query-device 1 with EIO",
            &[(
                "query_device: ok\nsrq yes, atomics yes, sge 32, rd_atom 128 128",
                "query_device: EIO",
            )],
        ),
        (
            "fail ibv_query_port 1 with EIO",
            &[("query_port: ok\nwidth 1, speed 8", "query_port: EIO")],
        ),
        ("fail query-gid 1 with ENODEV", &[("query_gid: ok", "query_gid: ENODEV")]),
        ("fail resize-cq 1 with ENOMEM", &[("resize_cq: ok", "resize_cq: ENOMEM")]),
        ("fail dereg-mr 1 with EBUSY", &[("dereg_mr: ok", "dereg_mr: EBUSY")]),
        ("fail dealloc-pd 1 with EBUSY", &[("dealloc_pd: ok", "dealloc_pd: EBUSY")]),
    ] {
        let line = ["--local", "1", "--prefix", "none", "--fault", sentence, "--"];
        let output = roce_run(&line).arg(&program).output()?;
        let printed = succeeded(&output).map_err(|error| format!("{sentence}: {error}"))?;
        let expected = changes.iter().fold(USUAL.to_owned(), |text, (usual, changed)| {
            assert!(text.contains(usual), "{usual}");
            text.replace(usual, changed)
        });
        assert_eq!(printed, expected, "{sentence}");
        let said = String::from_utf8(output.stderr)?;
        assert!(said.contains(": happened once"), "{sentence}: {said}");
    }
    Ok(())
}
