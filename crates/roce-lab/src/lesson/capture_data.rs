//! Captures that lessons explain.

use std::net::IpAddr;

use serde::Deserialize;

/// Capture of a real run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaptureData {
    /// Name of a file in `lessons/captures`, without its extension.
    pub file: String,
    /// Address of each host of the lesson's world, in their order.
    pub addresses: Vec<IpAddr>,
}

impl CaptureData {
    /// Returns the bytes of the file; `None` if there is none of this name.
    pub(crate) fn bytes(&self) -> Option<&'static [u8]> {
        FILES.iter().find(|(name, _)| *name == self.file).map(|(_, bytes)| *bytes)
    }
}

/// Captures by name. README.md of the folder says how they were made.
const FILES: &[(&str, &[u8])] = &[
    ("mckey", include_bytes!("../../lessons/captures/mckey.pcap")),
    ("rping", include_bytes!("../../lessons/captures/rping.pcap")),
    ("windows", include_bytes!("../../lessons/captures/windows.pcap")),
];
