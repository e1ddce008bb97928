//! The options of commands that put a switch between the hosts of a private network.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::spec::SwitchSpec;
use crate::as_text;

/// The switch of a private network.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SwitchOptions {
    /// Put a switch with queues between the hosts of --local, such as
    /// rate=1G,buffer=256K,ecn=20K:80K:0.2,pfc=on (see `roce switch --help`)
    #[arg(long, value_name = "SPEC", requires = "local")]
    #[serde(with = "as_text::optional")]
    pub(crate) switch: Option<SwitchSpec>,
    /// Write the switch's report as JSON at the end
    #[arg(long, value_name = "FILE", requires = "switch")]
    #[serde(with = "as_text::optional_path")]
    pub(crate) switch_report: Option<PathBuf>,
}

impl SwitchOptions {
    /// Returns the rate of the links in bits per second, if a switch gives them one.
    pub(crate) fn link_rate(&self) -> Option<u64> {
        self.switch.as_ref().map(SwitchSpec::rate)
    }
}
