//! The files that programs see.

use std::fs;
use std::process::Command;

use roce_test_macros::tier1;

use super::{Outcome, compile, output_of, roce, roce_run, temporary};

const WAYS: [&str; 2] = ["mount", "preload"];

/// Runs a line in a private host.
fn seen(way: &str, line: &[&str]) -> Outcome<String> {
    output_of(&[&["--local", "1", "--view", way, "--"], line].concat())
}

#[tier1]
fn ls_cat_and_stat_see_the_files_of_a_device() -> Outcome {
    for way in WAYS {
        let text = seen(way, &["ls", "/sys/class/infiniband", "/dev/infiniband"])?;
        assert_eq!(
            text,
            "[0] /dev/infiniband:\n[0] rdma_cm\n[0] uverbs0\n[0] \n[0] /sys/class/infiniband:\n[0] roce0\n"
        );
        let port = "/sys/class/infiniband/roce0/ports/1";
        let files = [
            "/sys/class/infiniband/roce0/node_type",
            "/sys/class/infiniband_verbs/uverbs0/ibdev",
            "/sys/class/misc/rdma_cm/abi_version",
            &format!("{port}/state"),
            &format!("{port}/link_layer"),
            &format!("{port}/gid_attrs/types/1"),
            &format!("{port}/gid_attrs/ndevs/1"),
            &format!("{port}/gids/1"),
        ];
        let text = seen(way, &[&["cat"], &files[..]].concat())?;
        let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
        let expected = ["1: CA", "roce0", "4", "4: ACTIVE", "Ethernet", "RoCE v2", "eth0", gid];
        assert_eq!(text, expected.map(|line| format!("[0] {line}\n")).concat(), "{way}");
        let text = seen(way, &["stat", "-L", "-c", "%F %a", "/dev/infiniband/uverbs0"])?;
        assert_eq!(text, "[0] character special file 666\n", "{way}");
        let text = seen(way, &["ls", "/sys/class/infiniband/roce0/device/net"])?;
        assert_eq!(text, "[0] eth0\n", "{way}");
    }
    Ok(())
}

/// NCCL cuts the path to which `device` leads behind its last slash, and takes the address of a PCI function there.
#[tier1]
fn each_device_leads_to_a_folder_with_the_name_of_a_pci_function() -> Outcome {
    for way in WAYS {
        let class = "/sys/class/infiniband";
        let script = format!(
            "realpath -e {class}/roce0/device {class}/roce1/device {class}_verbs/uverbs1/device && \
             cat {class}/roce1/device/numa_node && ls {class}/roce1/device/net && \
             ls {class}/roce1/device/infiniband/roce1/ports && test ! -e {class}/roce1/device/subsystem"
        );
        let line = ["--local", "1", "--rails", "2", "--prefix", "none", "--view", way, "--", "sh"];
        let seen = output_of(&[&line[..], &["-c", &script]].concat())?;
        let folder =
            |number| format!("{class}/roce{number}/pciffff:0{number}/ffff:0{number}:00.0\n");
        let expected = [&folder(0), &folder(1), &folder(1), "-1\n", "eth1\n", "1\n"].concat();
        assert_eq!(seen, expected, "{way}");
    }
    Ok(())
}

/// UCX reads the GIDs of a device from there, and ends by a signal where one is missing.
#[tier1]
fn the_folder_of_an_interface_leads_to_the_whole_device_with_as_many_gids_as_it_has() -> Outcome {
    for way in WAYS {
        let device = "/sys/class/net/eth0/device/infiniband/roce0";
        let script = format!(
            "cat {device}/node_type {device}/ports/1/state {device}/ports/1/gids/254 && \
             ls {device}/ports/1/gids | wc -l && ls {device}/ports/1/gid_attrs/types | wc -l && \
             cat {device}/ports/1/gid_attrs/types/254 2>&1"
        );
        let line = ["--local", "1", "--prefix", "none", "--view", way, "--", "sh", "-c", &script];
        let seen = String::from_utf8(roce_run(&line).output()?.stdout)?;
        let zero = ["0000"; 8].join(":");
        let expected = format!("1: CA\n4: ACTIVE\n{zero}\n255\n255\ncat: ");
        assert!(
            seen.starts_with(&expected) && seen.ends_with("Invalid argument\n"),
            "{way}: {seen}"
        );
    }
    Ok(())
}

#[tier1]
fn other_miscellaneous_devices_stay_beside_rdma_cm() -> Outcome {
    let own: Vec<_> = fs::read_dir("/sys/class/misc")?.collect::<Result<_, _>>()?;
    let text = seen("mount", &["ls", "/sys/class/misc"])?;
    assert_eq!(text.lines().count(), own.len() + 1, "{text}");
    Ok(())
}

#[tier1]
fn a_private_host_has_its_own_interfaces_in_sys() -> Outcome {
    let text = seen("mount", &["ls", "/sys/class/net", "/sys/devices/virtual/net"])?;
    assert_eq!(text.matches("eth0").count(), 2, "{text}");
    assert_eq!(text.split_whitespace().filter(|word| *word == "lo").count(), 2, "{text}");
    // Two folders with two interfaces each.
    assert_eq!(text.lines().count(), 2 * 3 + 1, "{text}");
    Ok(())
}

#[tier1]
fn devices_have_the_names_that_they_are_given() -> Outcome {
    let list = ["ls", "/sys/class/infiniband"];
    let text = output_of(&[&["--local", "1", "--dev", "rxe7=eth0", "--"], &list[..]].concat())?;
    assert_eq!(text, "[0] rxe7\n");
    // Names of the environment are those of this host's interfaces, which a private host has not.
    let mut command = super::roce_run(&[&["--local", "1", "--"], &list[..]].concat());
    let text = super::succeeded(&command.env("ROCE_DEVICES", "x=nosuch0").output()?)?;
    assert_eq!(text, "[0] roce0\n");
    // Those of every interface are a private host's, too.
    let mut command = super::roce_run(&[&["--local", "1", "--"], &list[..]].concat());
    let text = super::succeeded(&command.env("ROCE_DEVICES", "rxe3=*").output()?)?;
    assert_eq!(text, "[0] rxe3\n");
    let mut command = super::roce_run(&[&["--"], &list[..]].concat());
    let refused = command.env("ROCE_DEVICES", "x=nosuch0").output()?;
    assert!(String::from_utf8(refused.stderr)?.contains("nosuch0"));
    Ok(())
}

#[tier1]
fn both_ways_show_the_same_files() -> Outcome {
    let find = ["find", "/sys/class/infiniband/", "/sys/class/infiniband_verbs/", "-type", "f"];
    let script = "for file in $(find /sys/class/infiniband/ -type f | sort); do \
                  echo $file $(cat $file); done";
    for line in [&find[..], &["sh", "-c", script]] {
        let [mut mounted, mut preloaded] = WAYS.map(|way| {
            let text = seen(way, line).expect("it runs");
            // The MAC address of a private host is another one each time.
            let fixed =
                text.lines().filter(|line| !line.contains("guid") && !line.contains("gids/0"));
            fixed.map(str::to_owned).collect::<Vec<_>>()
        });
        mounted.sort();
        preloaded.sort();
        assert!(mounted.len() > 20, "{mounted:?}");
        assert_eq!(mounted, preloaded);
    }
    Ok(())
}

#[tier1]
fn every_call_of_the_c_library_sees_them() -> Outcome {
    let source = temporary("calls.c");
    fs::write(&source, include_str!("calls.c"))?;
    let program = temporary("calls");
    // With and without the checking variants of the calls.
    for flags in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2"], &["-O1", "-D_FILE_OFFSET_BITS=64"]]
    {
        compile(&source, &program, flags)?;
        let name = program.to_str().ok_or("a path that is text")?;
        let [mounted, preloaded] = WAYS.map(|way| seen(way, &[name]).expect("it runs"));
        assert_eq!(mounted, preloaded);
        assert!(mounted.lines().count() > 40 && !mounted.contains("FAILED"), "{mounted}");
    }
    Ok(())
}

#[tier1]
fn counters_in_the_view_follow_what_processes_publish() -> Outcome {
    // Two processes publish; the program waits until the view has the sum.
    let script = "file=/sys/class/infiniband/roce0/ports/1/$1; cat $file; \
                  echo \"$2 40000\" > $ROCE_RUN/counters/roce0.1; \
                  echo \"$2 4\" > $ROCE_RUN/counters/roce0.2; \
                  while [ \"$(cat $file)\" = 0 ]; do sleep 0.01; done; cat $file";
    for way in WAYS {
        for (file, name, expected) in [
            ("counters/port_xmit_data", "device_sent_bytes", "10001"),
            ("hw_counters/out_of_seq_request", "out_of_seq_request", "40004"),
        ] {
            let text = seen(way, &["sh", "-c", script, "sh", file, name])?;
            assert_eq!(text, format!("[0] 0\n[0] {expected}\n"), "{way}");
        }
        let line = ["--counters", "--local", "1", "--view", way, "--", "sh", "-c", script, "sh"];
        let line = [&line[..], &["hw_counters/sent_pkts", "sent_pkts"]].concat();
        let told = String::from_utf8(super::roce_run(&line).output()?.stderr)?;
        let words: Vec<&str> = told.split_whitespace().collect();
        assert_eq!(words, ["[0]", "roce0", "sent_pkts", "40004"]);
    }
    Ok(())
}

#[tier1]
fn a_program_that_reads_nothing_of_it_sees_its_own_files() -> Outcome {
    // Neither what is created nor what is missing changes.
    let script = "echo text > infiniband && cat infiniband && ls /sys/class/net/lo > /dev/null && \
                  ! ls /sys/class/infinibandage 2> /dev/null && readlink -f /proc/self/cwd";
    let folder = temporary("own-files");
    fs::create_dir_all(&folder)?;
    let mut command =
        super::roce_run(&["--local", "1", "--view", "preload", "--", "sh", "-c", script]);
    let text = super::succeeded(&command.current_dir(&folder).output()?)?;
    assert_eq!(text, format!("[0] text\n[0] {}\n", folder.display()));
    Ok(())
}

#[tier1]
fn the_view_ends_with_its_run() -> Outcome {
    let script = "printenv LD_LIBRARY_PATH; ls $ROCE_RUN";
    let folder = temporary("temporary");
    fs::create_dir_all(&folder)?;
    for way in WAYS {
        let mut command =
            super::roce_run(&["--local", "1", "--view", way, "--", "sh", "-c", script]);
        let text = super::succeeded(&command.env("TMPDIR", &folder).output()?)?;
        let libraries = format!("{}/roce-run-", folder.display());
        assert!(text.contains(&libraries), "{text}");
        assert_eq!(text.contains("view-by-preload"), way == "preload", "{text}");
        assert_eq!(fs::read_dir(&folder)?.count(), 0, "{way} leaves files behind");
    }
    let outside = Command::new("ls").arg("/sys/class").output()?;
    assert!(!String::from_utf8_lossy(&outside.stdout).contains("infiniband_verbs"));
    Ok(())
}

#[tier1]
fn the_tree_is_printed() -> Outcome {
    let output = Command::new(roce()).args(["view", "--dev", "x=nosuch0"]).output()?;
    assert!(String::from_utf8_lossy(&output.stderr).contains("nosuch0"), "{output:?}");
    let host = roce_netns::VirtualNetwork::new()?.host("one")?;
    let mut command = Command::new(roce());
    command.arg("view").stderr(std::process::Stdio::piped());
    // A host without an interface has no device.
    let refused = host.spawn(command)?.wait_with_output()?;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("no Ethernet interface") && words.lines().count() == 1, "{words}");
    Ok(())
}
