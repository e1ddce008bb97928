//! NCCL's environment variables: a table of their help and effect.

use super::selector::Selector;

/// The values of the variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NcclEnv {
    pub(crate) hca: Option<Selector>,
    pub(crate) ifname: Option<Selector>,
    pub(crate) gid_index: Option<u8>,
    pub(crate) traffic_class: Option<u8>,
    pub(crate) ack_timeout: Option<u8>,
    pub(crate) retry_count: Option<u8>,
    pub(crate) qps_per_connection: Option<u32>,
    pub(crate) split: bool,
    pub(crate) root: Option<String>,
    pub(crate) debug: Level,
    pub(crate) debug_file: Option<String>,
    /// Warnings about ignored variables, one line each.
    pub(crate) warnings: Vec<String>,
}

/// The log level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Silent,
    Version,
    Warn,
    Info,
}

/// One variable: its name, its help text, and the function that applies a value. The error says what
/// is wrong and what to do.
struct EnvVar(&'static str, &'static str, fn(&mut NcclEnv, &str) -> Result<(), String>);

const ENV_VARS: &[EnvVar] = &[
    EnvVar(
        "NCCL_IB_HCA",
        "Interfaces to use, each as a rail: eth0,eth1 (prefixes), =eth0\n\
         (exactly), ^eth0 (all others), eth0:1 (with its only port);\n\
         see roce devices",
        |env, value| set(&mut env.hca, Selector::parse(value, true)),
    ),
    EnvVar(
        "NCCL_SOCKET_IFNAME",
        "Same format; without NCCL_IB_HCA, the first match is used. It does\n\
         not affect the root address",
        |env, value| set(&mut env.ifname, Selector::parse(value, false)),
    ),
    EnvVar("NCCL_COMM_ID", "Address of rank 0, HOST:PORT, without --root-address", |env, value| {
        set(&mut env.root, Ok(value.to_owned()))
    }),
    EnvVar(
        "NCCL_IB_GID_INDEX",
        "Row of the GID table; -1: the first IPv4 address, else IPv6",
        |env, value| {
            if value.trim() != "-1" {
                env.gid_index = Some(number(value, 0, 255)? as u8);
            }
            Ok(())
        },
    ),
    EnvVar(
        "NCCL_IB_TC",
        "Traffic class of every packet (IPv4: type of service), 0 to 255",
        |env, value| set(&mut env.traffic_class, number(value, 0, 255).map(|n| n as u8)),
    ),
    EnvVar(
        "NCCL_IB_SL",
        "0 only; on Ethernet a service level is a VLAN priority, which is not\n\
         set: others cause a warning",
        |env, value| {
            if number(value, 0, 15)? != 0 {
                let why = "no VLAN priority is set for service levels; set one on the VLAN \
                           interface (ip link ... egress-qos-map)";
                env.warnings.push(format!("NCCL_IB_SL={value} has no effect: {why}"));
            }
            Ok(())
        },
    ),
    EnvVar(
        "NCCL_IB_TIMEOUT",
        "ACK timeout, 4.096 us * 2^N, 1 to 31 (14: 67 ms). NCCL has 20, 4.3 s,\n\
         since a card finds the loss of a last packet by it alone; here probes do\n\
         within milliseconds, and it only finds peers that are gone",
        |env, value| set(&mut env.ack_timeout, number(value, 1, 31).map(|n| n as u8)),
    ),
    EnvVar("NCCL_IB_RETRY_CNT", "Retries after ACK timeouts, 0 to 7 (7)", |env, value| {
        set(&mut env.retry_count, number(value, 0, 7).map(|n| n as u8))
    }),
    EnvVar(
        "NCCL_IB_QPS_PER_CONNECTION",
        "Queue pairs to each neighbour over each interface, 1 to 128 (1)",
        |env, value| set(&mut env.qps_per_connection, number(value, 1, 128).map(|n| n as u32)),
    ),
    EnvVar(
        "NCCL_IB_SPLIT_DATA_ON_QPS",
        "1: spread every piece over all queue pairs; 0: pieces in turn (0)",
        |env, value| {
            env.split = number(value, 0, 1)? == 1;
            Ok(())
        },
    ),
    EnvVar("NCCL_ALGO", "Ring; lists without Ring cause a warning", |env, value| {
        env.expect("NCCL_ALGO", value, allows(value, "ring"), "Ring is the only algorithm");
        Ok(())
    }),
    EnvVar("NCCL_PROTO", "Simple; LL and LL128 alone cause a warning", |env, value| {
        env.expect("NCCL_PROTO", value, allows(value, "simple"), "Simple is the only protocol");
        Ok(())
    }),
    EnvVar("NCCL_NET", "IB; others cause a warning", |env, value| {
        let is_ib = value.trim().eq_ignore_ascii_case("ib");
        env.expect("NCCL_NET", value, is_ib, "IB, which includes RoCE, is the only network");
        Ok(())
    }),
    EnvVar("NCCL_IB_DISABLE", "0; 1 causes a warning", |env, value| {
        let is_enabled = number(value, 0, 1)? == 0;
        env.expect("NCCL_IB_DISABLE", value, is_enabled, "RDMA is the only transport");
        Ok(())
    }),
    EnvVar(
        "NCCL_DEBUG",
        "VERSION, WARN, or INFO: the chosen path (interfaces, GIDs, queue\n\
         pairs, limits, order of the ring, MTU), on standard error",
        |env, value| {
            env.debug = match value.trim().to_uppercase().as_str() {
                "VERSION" => Level::Version,
                "WARN" => Level::Warn,
                "INFO" => Level::Info,
                "TRACE" | "ABORT" => {
                    let what = "is the same as INFO; --trace shows every event";
                    env.warnings.push(format!("NCCL_DEBUG={value} {what}"));
                    Level::Info
                }
                _ => return Err("use VERSION, WARN or INFO".to_owned()),
            };
            Ok(())
        },
    ),
    EnvVar(
        "NCCL_DEBUG_FILE",
        "File for that output; %h: host name, %p: process id",
        |env, value| set(&mut env.debug_file, Ok(value.to_owned())),
    ),
];

impl NcclEnv {
    /// Warns of a value that asks for what there is not: a script for NCCL sets it for all its programs.
    fn expect(&mut self, name: &str, value: &str, is_possible: bool, why: &str) {
        if !is_possible {
            self.warnings.push(format!("{name}={value} has no effect: {why}"));
        }
    }

    /// Reads the environment.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::read(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Reads any environment. An invalid value is an error; an unsupported NCCL variable causes a
    /// warning.
    pub(crate) fn read(
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, String> {
        let mut nccl_env = Self::default();
        let mut variables: Vec<_> = variables
            .into_iter()
            .filter(|(name, value)| name.starts_with("NCCL_") && !value.is_empty())
            .collect();
        variables.sort();
        for (name, value) in variables {
            match ENV_VARS.iter().find(|EnvVar(known, ..)| *known == name) {
                Some(EnvVar(.., apply)) => apply(&mut nccl_env, &value)
                    .map_err(|why| format!("{name}={value} is invalid: {why}"))?,
                None => nccl_env
                    .warnings
                    .push(format!("{name}={value} has no effect (see roce allreduce --help)")),
            }
        }
        Ok(nccl_env)
    }
}

/// Returns the section of the help.
pub(crate) fn help() -> String {
    let mut text = "Environment variables of NCCL (others cause a warning):".to_owned();
    for EnvVar(name, help_text, _) in ENV_VARS {
        let mut lead = *name;
        for line in help_text.lines() {
            text += &format!("\n  {lead:<26} {line}");
            lead = "";
        }
    }
    text
}

fn set<T>(field: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *field = Some(value?);
    Ok(())
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number =
        crate::parse_number::parse(text).ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("use a number from {least} to {most}"))
}

/// Returns true if a list such as `Ring,Tree`, `^Tree` or `allreduce:ring;broadcast:ring` contains `wanted`.
fn allows(value: &str, wanted: &str) -> bool {
    let leaves = |list: &str| {
        let list = list.rsplit_once(':').map_or(list, |(_, list)| list).trim().to_lowercase();
        let (except, list) = list.strip_prefix('^').map_or((false, list.as_str()), |l| (true, l));
        list.split(',').any(|name| name.trim() == wanted) != except
    };
    value.split(';').filter(|list| !list.trim().is_empty()).all(leaves)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<NcclEnv, String> {
        NcclEnv::read(variables.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn every_variable_has_an_effect_and_help() {
        let nccl_env = read(&[
            ("NCCL_IB_HCA", "=eth1,eth0"),
            ("NCCL_SOCKET_IFNAME", "^lo"),
            ("NCCL_COMM_ID", "10.0.0.1:5000"),
            ("NCCL_IB_GID_INDEX", "3"),
            ("NCCL_IB_TC", "106"),
            ("NCCL_IB_SL", "0"),
            ("NCCL_IB_TIMEOUT", "20"),
            ("NCCL_IB_RETRY_CNT", "3"),
            ("NCCL_IB_QPS_PER_CONNECTION", "4"),
            ("NCCL_IB_SPLIT_DATA_ON_QPS", "1"),
            ("NCCL_ALGO", "Ring"),
            ("NCCL_PROTO", "Simple"),
            ("NCCL_NET", "IB"),
            ("NCCL_IB_DISABLE", "0"),
            ("NCCL_DEBUG", "info"),
            ("NCCL_DEBUG_FILE", "/tmp/%h.%p"),
        ])
        .unwrap();
        let expected = NcclEnv {
            hca: Some(Selector::parse("=eth1,eth0", true).unwrap()),
            ifname: Some(Selector::parse("^lo", false).unwrap()),
            gid_index: Some(3),
            traffic_class: Some(106),
            ack_timeout: Some(20),
            retry_count: Some(3),
            qps_per_connection: Some(4),
            split: true,
            root: Some("10.0.0.1:5000".to_owned()),
            debug: Level::Info,
            debug_file: Some("/tmp/%h.%p".to_owned()),
            warnings: Vec::new(),
        };
        assert_eq!(nccl_env, expected);
        assert!(ENV_VARS.iter().all(|EnvVar(name, ..)| help().contains(name)));
    }

    #[test]
    fn invalid_and_unsupported_variables_are_named() {
        let refused = [
            ("NCCL_IB_DISABLE", "2"),
            ("NCCL_IB_TC", "256"),
            ("NCCL_IB_RETRY_CNT", "8"),
            ("NCCL_IB_QPS_PER_CONNECTION", "0"),
            ("NCCL_DEBUG", "loud"),
        ];
        for (name, value) in refused {
            let why = read(&[(name, value)]).unwrap_err();
            assert!(why.starts_with(&format!("{name}={value} is invalid")), "{why}");
        }
        let warned = [
            ("NCCL_IB_SL", "3"),
            ("NCCL_BUFFSIZE", "4194304"),
            ("NCCL_DEBUG", "TRACE"),
            ("NCCL_ALGO", "Tree"),
            ("NCCL_ALGO", "^Ring"),
            ("NCCL_ALGO", "allreduce:tree;broadcast:ring"),
            ("NCCL_PROTO", "LL128,LL"),
            ("NCCL_NET", "Socket"),
            ("NCCL_IB_DISABLE", "1"),
        ];
        for (name, value) in warned {
            let nccl_env = read(&[(name, value)]).unwrap();
            assert_eq!(nccl_env.warnings.len(), 1);
            assert!(nccl_env.warnings[0].starts_with(&format!("{name}={value}")));
        }
    }

    #[test]
    fn lists_with_ring_need_no_warning() {
        for value in ["Ring", "ring,tree", "^Tree", "^tree,nvls", "allreduce:tree,ring"] {
            assert_eq!(read(&[("NCCL_ALGO", value)]), Ok(NcclEnv::default()), "{value}");
        }
    }

    #[test]
    fn empty_and_other_variables_are_ignored() {
        let nccl_env =
            read(&[("NCCL_IB_TC", ""), ("TORCH_NCCL_X", "1"), ("PATH", "/bin")]).unwrap();
        assert_eq!(nccl_env, NcclEnv::default());
    }
}
