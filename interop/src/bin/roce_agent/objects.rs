//! What the agent holds: regions, queue pairs and shared receive queues by name.

use std::collections::HashMap;

use roce_verbs::{
    AccessFlags, AddressHandle, CompletionChannel, CompletionQueue, Device, MemoryRegion,
    MemoryWindow, ProtectionDomain, Qpn, QueuePair, SharedReceiveQueue,
};

use crate::result::Result;

/// A device and everything made from it.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) device: Device,
    pub(crate) pd: ProtectionDomain,
    /// In front of the regions, which they are bound to, so that they are dropped first.
    windows: HashMap<String, MemoryWindow>,
    regions: HashMap<String, MemoryRegion>,
    pairs: HashMap<String, Pair>,
    srqs: HashMap<String, SharedReceiveQueue>,
}

/// A queue pair with completion queues of its own.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) qp: QueuePair,
    pub(crate) send: Queue,
    pub(crate) recv: Queue,
    pub(crate) gid_index: u8,
    pub(crate) access: AccessFlags,
    /// Where its datagrams go.
    pub(crate) destination: Option<(AddressHandle, Qpn)>,
}

/// A completion queue and the channel that it reports on.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: CompletionChannel,
}

impl Objects {
    pub(crate) fn on(device: Device) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let (windows, regions, pairs, srqs) = Default::default();
        Ok(Self { device, pd, windows, regions, pairs, srqs })
    }

    pub(crate) fn queue(&self, capacity: usize) -> Result<Queue> {
        let channel = self.device.create_completion_channel()?;
        let cq = self.device.create_cq(capacity, Some(&channel))?;
        Ok(Queue { cq, channel })
    }

    pub(crate) fn region(&self, name: &str) -> Result<&MemoryRegion> {
        self.regions.get(name).ok_or_else(|| format!("no such region: {name}").into())
    }

    pub(crate) fn pair(&self, name: &str) -> Result<&Pair> {
        self.pairs.get(name).ok_or_else(|| format!("no such queue pair: {name}").into())
    }

    pub(crate) fn pair_mut(&mut self, name: &str) -> Result<&mut Pair> {
        self.pairs.get_mut(name).ok_or_else(|| format!("no such queue pair: {name}").into())
    }

    pub(crate) fn srq(&self, name: &str) -> Option<&SharedReceiveQueue> {
        self.srqs.get(name)
    }

    /// Makes sure that a name may be given to something new.
    pub(crate) fn is_free(&self, name: &str) -> Result<()> {
        let is_taken = self.regions.contains_key(name)
            || self.pairs.contains_key(name)
            || self.srqs.contains_key(name);
        if name.is_empty() || is_taken {
            return Err(format!("{name:?} is taken, or no name").into());
        }
        Ok(())
    }

    pub(crate) fn keep_region(&mut self, name: &str, region: MemoryRegion) {
        self.regions.insert(name.to_owned(), region);
    }

    /// The window to the region of a name.
    pub(crate) fn window(&self, name: &str) -> Result<&MemoryWindow> {
        self.windows.get(name).ok_or_else(|| format!("{name} has no window").into())
    }

    pub(crate) fn keep_window(&mut self, name: &str, window: MemoryWindow) {
        self.windows.insert(name.to_owned(), window);
    }

    pub(crate) fn keep_pair(&mut self, name: &str, pair: Pair) {
        self.pairs.insert(name.to_owned(), pair);
    }

    pub(crate) fn keep_srq(&mut self, name: &str, srq: SharedReceiveQueue) {
        self.srqs.insert(name.to_owned(), srq);
    }

    pub(crate) fn drop_object(&mut self, name: &str) -> Result<()> {
        self.windows.remove(name);
        let found = self.regions.remove(name).is_some()
            || self.pairs.remove(name).is_some()
            || self.srqs.remove(name).is_some();
        if found { Ok(()) } else { Err(format!("nothing is called {name}").into()) }
    }
}
