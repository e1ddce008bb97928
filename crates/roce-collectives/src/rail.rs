//! The interfaces of a rank.

use roce_verbs::{
    AccessFlags, CompletionChannel, CompletionQueue, ConnectOptions, Device, DeviceConfig,
    ProtectionDomain,
};

use crate::config::GroupConfig;
use crate::error::Error;

/// One interface of a rank, with the objects that its lanes share.
#[derive(Debug)]
pub(crate) struct Rail {
    pub(crate) device: Device,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
}

impl Rail {
    /// Opens the interface of rail `number`, with room for so many completions.
    pub(crate) fn open(
        (number, interface): (u32, &str),
        config: &GroupConfig,
        completions: usize,
    ) -> Result<Self, Error> {
        let device_config = DeviceConfig { rail: Some(number), ..config.device.clone() };
        let device = Device::open(interface, device_config)?;
        let pd = device.alloc_pd()?;
        let channel = device.create_completion_channel()?;
        let cq = device.create_cq(completions, Some(&channel))?;
        Ok(Self { device, pd, cq, channel })
    }
}

pub(crate) fn options(config: &GroupConfig) -> ConnectOptions {
    ConnectOptions {
        gid_index: config.gid_index,
        access: AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
        timeout: config.ack_timeout,
        retry_count: config.retry_count,
        traffic_class: config.traffic_class,
        ..ConnectOptions::default()
    }
}
