//! Captures that lessons explain.

use std::net::IpAddr;

use serde::Deserialize;

/// Capture of a real run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CaptureData {
    /// Name of a file in `lessons/captures`, without its extension; of a lesson in a file also a capture
    /// beside that.
    pub file: String,
    /// Address of each host of the lesson's world, in their order.
    pub addresses: Vec<IpAddr>,
    /// The bytes of a capture that is none of those.
    #[serde(skip)]
    pub(super) loaded: Option<Vec<u8>>,
}

impl CaptureData {
    /// Returns the bytes of the file; `None` if there is none of this name.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        let known = FILES.iter().find(|(name, _)| *name == self.file).map(|(_, bytes)| *bytes);
        known.or(self.loaded.as_deref())
    }
}

/// Captures by name. README.md of the folder says how they were made.
const FILES: &[(&str, &[u8])] = &[
    ("mckey", include_bytes!("../../lessons/captures/mckey.pcap")),
    ("rping", include_bytes!("../../lessons/captures/rping.pcap")),
    ("windows", include_bytes!("../../lessons/captures/windows.pcap")),
];
