//! The command line.

use clap::{Parser, Subcommand};

use crate::{
    collective, devices, dissect, env, generate, lab, ladder, perf, pingpong, run, send, simulate,
    switch, view,
};

/// RoCEv2 in user space: the packets of an RDMA network card, from a raw packet socket
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Collective(collective::Command),
    Devices(devices::Options),
    Dissect(dissect::Options),
    Send(send::Options),
    Pingpong(pingpong::Options),
    Perf(perf::Options),
    Lab(lab::Options),
    Ladder(ladder::Options),
    Run(run::Options),
    Env(env::Options),
    Simulate(simulate::Options),
    Switch(switch::Options),
    View(view::Options),
    #[command(hide = true)]
    RunStage(run::StageOptions),
    #[command(hide = true)]
    Generate(generate::Options),
}

const EXAMPLES: &str = "\
Try it on one machine, without root and without touching its network:
  roce allreduce --local 3 -b 8 -e 64M -f 2
  roce pingpong --local
  roce perf write bw --local
  roce run --local 2 -- ib_write_bw

Between two machines (or with an unmodified ibv_rc_pingpong on one side):
  roce pingpong                 on the first
  roce pingpong <first's name>  on the second

Traffic commands need CAP_NET_RAW: run them as root, or with --local.
ROCE_LOG=error, warn, info, debug, trace or off sets the log level.";

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_letters_of_ibv_rc_pingpong_are_understood() {
        let line =
            "roce pingpong -p 1 -d eth0 -i 1 -s 0x10 -m 4096 -r 5 -n 9 -l 3 -e -g 2 -c -N host";
        assert!(Cli::try_parse_from(line.split(' ')).is_ok());
    }

    #[test]
    fn contradictory_options_are_refused() {
        let lines = [
            "roce pingpong --local host",
            "roce pingpong --link-mtu 1500 host",
            "roce pingpong -m 1500 host",
            "roce pingpong -i 2 host",
            "roce pingpong --service xrc host",
            "roce pingpong --service srq -q 257 host",
            "roce perf write bw --compare host",
            "roce perf write bw -a -s 5 host",
            "roce perf write bw -n 5 -D 5 host",
            "roce perf write bw --loss 2 host",
            "roce perf write bw -c XRC host",
            "roce perf write bw --cpu one host",
            "roce run",
            "roce run --local 0 -- ls",
            "roce run --link-mtu 1500 -- ls",
            "roce run --view fuse -- ls",
            "roce run --switch rate=1G -- ls",
            "roce run --local 2 --switch rate=fast -- ls",
            "roce perf write bw --local --switch-report file",
            "roce send --opcode rc_send_only --script file",
            "roce send --from file:1 --payload 5 host",
            "roce send --map-qp 1=2 host",
            "roce send --rate 0 --opcode cnp host",
            "roce send --let psn --script file",
            "roce switch",
            "roce switch --port a --port b --spec pfc=9",
            "roce simulate fabric --loss 2",
            "roce simulate fabric --ecn 5K:4K:0.1",
            "roce simulate fabric --hosts 1",
        ];
        for line in lines {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }

    #[test]
    fn the_help_of_every_command_is_reviewed() {
        let help = |path: &[&str]| {
            // Independent of the width of the terminal.
            let mut command = Cli::command().term_width(100);
            command.build();
            let mut command = &mut command;
            for name in path {
                command = command.find_subcommand_mut(name).expect("the command exists");
            }
            command.render_help().to_string()
        };
        insta::assert_snapshot!("roce", help(&[]));
        insta::assert_snapshot!("roce_devices", help(&["devices"]));
        insta::assert_snapshot!("roce_dissect", help(&["dissect"]));
        insta::assert_snapshot!("roce_send", help(&["send"]));
        insta::assert_snapshot!("roce_pingpong", help(&["pingpong"]));
        insta::assert_snapshot!("roce_perf", help(&["perf"]));
        insta::assert_snapshot!("roce_lab", help(&["lab"]));
        insta::assert_snapshot!("roce_ladder", help(&["ladder"]));
        insta::assert_snapshot!("roce_run", help(&["run"]));
        insta::assert_snapshot!("roce_env", help(&["env"]));
        insta::assert_snapshot!("roce_switch", help(&["switch"]));
        insta::assert_snapshot!("roce_view", help(&["view"]));
        insta::assert_snapshot!("roce_simulate", help(&["simulate"]));
        insta::assert_snapshot!("roce_simulate_allreduce", help(&["simulate", "allreduce"]));
        insta::assert_snapshot!("roce_simulate_fabric", help(&["simulate", "fabric"]));
    }
}
