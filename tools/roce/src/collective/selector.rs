//! Lists of interfaces in the format of NCCL.

use std::fmt;

/// `eth0,eth1`, `eth` (a prefix), `=eth0` (exactly), `^eth0` (all others), `eth0:1` (with port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector {
    text: String,
    except: bool,
    exact: bool,
    names: Vec<(String, Option<u32>)>,
}

impl Selector {
    /// Parses a list, with ports if they apply.
    pub(crate) fn parse(text: &str, with_ports: bool) -> Result<Self, String> {
        let rest = text.trim();
        let (except, rest) = strip(rest, '^');
        let (exact, rest) = strip(rest, '=');
        let mut names = Vec::new();
        for name in rest.split(',').filter(|name| !name.is_empty()) {
            let (name, port) = match name.rsplit_once(':') {
                Some((name, port)) if with_ports => {
                    let port = port.parse().map_err(|_| format!("{port:?} is not a port"))?;
                    (name, Some(port))
                }
                _ => (name, None),
            };
            names.push((name.to_owned(), port));
        }
        if names.is_empty() {
            return Err("it names no interface".to_owned());
        }
        Ok(Self { text: text.to_owned(), except, exact, names })
    }

    /// Returns the matching `interfaces`, in the order of the list.
    pub(crate) fn pick(&self, interfaces: &[String]) -> Vec<String> {
        let matches = |interface: &str, (name, port): &(String, Option<u32>)| {
            let named =
                if self.exact { interface == name } else { interface.starts_with(name.as_str()) };
            // An interface is a device with one port.
            named && port.is_none_or(|port| port == 1)
        };
        let mut picked: Vec<String> = Vec::new();
        if self.except {
            let named = |interface: &String| self.names.iter().any(|name| matches(interface, name));
            picked.extend(interfaces.iter().filter(|interface| !named(interface)).cloned());
        } else {
            for name in &self.names {
                let more = interfaces.iter().filter(|interface| matches(interface, name));
                let more: Vec<_> = more.filter(|one| !picked.contains(one)).cloned().collect();
                picked.extend(more);
            }
        }
        picked
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn strip(text: &str, mark: char) -> (bool, &str) {
    text.strip_prefix(mark).map_or((false, text), |rest| (true, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_select_the_interfaces_that_nccl_selects() {
        let interfaces = ["eth0", "eth1", "eth10", "ib0"].map(str::to_owned);
        let pick = |text| Selector::parse(text, true).unwrap().pick(&interfaces).join(" ");
        assert_eq!(pick("eth"), "eth0 eth1 eth10");
        assert_eq!(pick("eth1"), "eth1 eth10");
        assert_eq!(pick("=eth1"), "eth1");
        assert_eq!(pick("=eth1,eth0"), "eth1 eth0");
        assert_eq!(pick("eth1,eth"), "eth1 eth10 eth0");
        assert_eq!(pick("^eth1"), "eth0 ib0");
        assert_eq!(pick("^=eth1"), "eth0 eth10 ib0");
        assert_eq!(pick("eth0:1"), "eth0");
        assert_eq!(pick("eth0:2"), "");
        assert_eq!(pick("mlx5_0"), "");
    }

    #[test]
    fn an_empty_list_is_refused() {
        for text in ["", "^", "=", ",", "^=,"] {
            assert!(Selector::parse(text, true).is_err(), "{text}");
        }
        assert!(Selector::parse("eth0:x", true).is_err());
        assert!(Selector::parse("eth0:x", false).is_ok(), "an alias may have a colon");
    }
}
