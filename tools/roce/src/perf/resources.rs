//! The resources of an end: queue pairs, a completion queue, memory.

use roce_verbs::exchange::QpDest;
use roce_verbs::{
    AccessFlags, AddressHandle, AddressVector, CompletionChannel, CompletionQueue, ConnectOptions,
    Device, Gid, MemoryRegion, Pages, PathMtu, ProtectionDomain, Psn, QpAttributes, QpState, Qpn,
    QueuePair, RecvWr, RegisterOptions, RemoteAddr, SendOperation, SendWr, Sge,
};

use super::control::{PeerInfo, QpInfo};
use super::loss::Loss;
use super::params::{AtomicKind, Connection, Params, Test, Verb};
use super::result::SizeResult;
use super::work_request::WorkRequest;
use crate::error::{CliError, Result};

/// The resources of one end.
///
/// Messages leave from the first half of the memory and arrive in the second, always at the same
/// offset, as in perftest, or cycling through a working set.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) device: Device,
    pub(crate) queue: CompletionQueue,
    /// The channel of the queue, if this end sleeps between completions.
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) qps: Vec<QueuePair>,
    pd: ProtectionDomain,
    /// Where the datagrams of each queue pair go.
    peers: Option<(AddressHandle, Vec<Qpn>)>,
    pub(crate) memory: MemoryRegion,
    /// The offset of the second half.
    pub(crate) half: usize,
    pub(crate) gid_index: u8,
}

impl Resources {
    pub(crate) fn new(
        device: &Device,
        params: &Params,
        local_options: LocalOptions,
    ) -> Result<Self> {
        let gid_index = match local_options.gid_index.or(device.default_gid_index()?) {
            Some(index) => index,
            None => {
                let name = device.interface();
                return Err(CliError::new(format!(
                    "{name} has no address: ip address add 10.0.0.1/24 dev {name}"
                )));
            }
        };
        let pd = device.alloc_pd()?;
        let room = usize::try_from(params.room().max(8))
            .map_err(|_| CliError::new("the message size exceeds the address space"))?;
        let half = room.next_multiple_of(PAGE);
        let everything = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let how =
            RegisterOptions { huge_pages: local_options.huge_pages, ..RegisterOptions::default() };
        let memory = pd.register_with(2 * half, everything, how)?;
        if memory.pages() == Pages::HugeWhereFree {
            eprintln!(
                "not enough huge pages are reserved (sysctl vm.nr_hugepages={}): using transparent \
                 ones where available",
                memory.len().div_ceil(HUGE_PAGE)
            );
        }
        let receives = if params.verb == Verb::Send { params.rx_depth } else { 1 };
        let room = (params.tx_depth + receives) as usize * params.qps as usize;
        let channel =
            local_options.events.then(|| device.create_completion_channel()).transpose()?;
        let queue = device.create_cq(room, channel.as_ref())?;
        let make = |_| {
            pd.queue_pair(&queue, &queue)
                .service(params.connection.service())
                .max_send_wr(params.tx_depth)
                .max_recv_wr(receives)
                .max_send_sge(1)
                .max_recv_sge(1)
                .max_inline(params.inline)
                .build()
        };
        let qps = (0..params.qps).map(make).collect::<Result<Vec<_>, _>>()?;
        let (device, peers) = (device.clone(), None);
        Ok(Self { device, queue, channel, qps, pd, peers, memory, half, gid_index })
    }

    /// Returns the addresses for the peer.
    pub(crate) fn peer_info(&self, gid_index: Option<u8>) -> Result<PeerInfo> {
        let name =
            |qp: &QueuePair| QpInfo { number: qp.number().get(), first_psn: qp.first_psn().get() };
        let dest = self.qps[0].dest(gid_index)?;
        Ok(PeerInfo {
            qps: self.qps.iter().map(name).collect(),
            gid: dest.gid.0,
            address: self.memory.address() + self.half as u64,
            key: self.memory.rkey(),
        })
    }

    /// Connects to the queue pairs of the peer.
    pub(crate) fn connect(
        &mut self,
        theirs: &PeerInfo,
        params: &Params,
        gid_index: Option<u8>,
    ) -> Result {
        let options = ConnectOptions {
            gid_index,
            path_mtu: params.path_mtu.and_then(PathMtu::from_bytes),
            timeout: params.qp_timeout,
            max_rd_atomic: params.outs,
            max_dest_rd_atomic: params.outs,
            max_rate: params.max_rate(),
            traffic_class: params.traffic_class,
            // Both ends are of the same version.
            gap_reports: true,
            ..ConnectOptions::default()
        };
        let out_of_range = || CliError::new("the other end sent an invalid queue pair number");
        if params.connection == Connection::Ud {
            self.qps.iter().try_for_each(|qp| qp.ready_for_datagrams(Q_KEY))?;
            let vector = AddressVector {
                max_rate: params.max_rate(),
                traffic_class: params.traffic_class,
                ..AddressVector::new(self.gid_index, Gid(theirs.gid))
            };
            let numbers = theirs.qps.iter().map(|qp| Qpn::new(qp.number).ok_or_else(out_of_range));
            self.peers = Some((self.pd.create_ah(&vector)?, numbers.collect::<Result<_, _>>()?));
            return Ok(());
        }
        for (qp, name) in self.qps.iter().zip(&theirs.qps) {
            let peer = QpDest {
                qpn: Qpn::new(name.number).ok_or_else(out_of_range)?,
                psn: Psn::new(name.first_psn).ok_or_else(out_of_range)?,
                gid: Gid(theirs.gid),
            };
            qp.connect(&peer, &options)?;
        }
        Ok(())
    }

    /// Takes the queue pairs to RESET. Receives of messages that were lost are gone then.
    pub(crate) fn reset(&self) -> Result {
        let reset = QpAttributes { state: Some(QpState::Reset), ..QpAttributes::default() };
        Ok(self.qps.iter().try_for_each(|qp| qp.modify(&reset))?)
    }

    /// Posts messages to one queue pair with one call.
    pub(crate) fn post_send(&self, index: usize, work: impl Iterator<Item = SendWr>) -> Result {
        match &self.peers {
            Some((ah, peers)) => self.qps[index].post_send_to(work, ah, peers[index], Q_KEY)?,
            None => self.qps[index].post_send(work)?,
        }
        Ok(())
    }

    /// Returns the messages of unreliable connections that this end has received whole.
    pub(crate) fn uc_messages(&self) -> Result<u64> {
        Ok(self.device.counter("uc_rcvd_msgs")?)
    }

    /// Returns true if there is one queue pair.
    pub(crate) fn has_one_qp(&self) -> bool {
        self.qps.len() == 1
    }

    /// Fills the source and clears the destination of messages of this size, if the data is
    /// verified afterwards.
    pub(crate) fn prepare_data(&self, params: &Params, size: u32, is_client: bool) -> Result {
        if params.test != Test::Bw || params.verb == Verb::Atomic {
            return Ok(());
        }
        // READs move data from the server to the client.
        let is_source = is_client == (params.verb != Verb::Read);
        let base = if is_client { 0 } else { self.half };
        match is_source {
            true => params.working_set(size).fill(&self.memory, base),
            false => params.working_set(size).clear(&self.memory, base),
        }
    }

    /// Compares received with sent data, at the end that received it.
    pub(crate) fn verify_data(
        &self,
        params: &Params,
        size: u32,
        is_client: bool,
        result: &SizeResult,
    ) -> Result {
        let is_destination = is_client == (params.verb == Verb::Read);
        let lost = result.loss.map_or(0, Loss::messages);
        if !params.is_comparable(size, lost) || !is_destination {
            return Ok(());
        }
        let base = if is_client { 0 } else { self.half };
        params.working_set(size).check(&self.memory, base, result.places_used)
    }

    /// Prepares the server for messages of this size.
    pub(crate) fn prepare(&self, params: &Params, size: u32) -> Result {
        if params.test == Test::Lat && params.verb == Verb::Write {
            self.memory.store_u8(self.half + size as usize - 1, 0)?;
        }
        if params.verb == Verb::Send {
            for index in 0..self.qps.len() {
                let first = self.initial_receives(params);
                self.post_receives(index, params, size, 0, first)?;
            }
        }
        Ok(())
    }

    /// Returns the receives to post on each queue pair before the first message.
    pub(crate) fn initial_receives(&self, params: &Params) -> u64 {
        params.known_messages().unwrap_or(u64::MAX).min(u64::from(params.rx_depth))
    }

    /// Posts `count` receives, the first at `offset`; returns the offset of the next.
    pub(crate) fn post_receives(
        &self,
        qp: usize,
        params: &Params,
        size: u32,
        offset: usize,
        count: u64,
    ) -> Result<usize> {
        let header = params.connection.header_len();
        let first = self.memory.sge(self.half..self.half + (header + size) as usize)?;
        let (cycle, mut offset) = (params.working_set(size), offset);
        self.qps[qp].post_recv((0..count).map(|_| {
            let buffer = Sge { addr: first.addr + offset as u64, ..first };
            offset = cycle.offset_after(offset);
            RecvWr { wr_id: qp as u64, sg_list: [buffer].into() }
        }))?;
        Ok(offset)
    }

    /// Returns the work requests of messages.
    pub(crate) fn message(
        &self,
        params: &Params,
        theirs: &PeerInfo,
        size: u32,
    ) -> Result<WorkRequest<'_>> {
        let remote = RemoteAddr { addr: theirs.address, rkey: theirs.key };
        let operation = match (params.verb, params.atomic) {
            (Verb::Send, _) => SendOperation::send(),
            (Verb::Write, _) => SendOperation::Write { remote, immediate: None },
            (Verb::Read, _) => SendOperation::Read { remote },
            (Verb::Atomic, AtomicKind::FetchAndAdd) => SendOperation::FetchAdd { remote, add: 1 },
            (Verb::Atomic, AtomicKind::CompareAndSwap) => {
                SendOperation::CompareSwap { remote, compare: 0, swap: 1 }
            }
        };
        let inline = size <= params.inline && matches!(params.verb, Verb::Send | Verb::Write);
        let piece = self.memory.sge(..size as usize)?;
        Ok(WorkRequest::new(&self.memory, operation, piece, inline))
    }
}

/// The options of one end that do not concern the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalOptions {
    pub(crate) gid_index: Option<u8>,
    /// True to sleep until completions come instead of polling.
    pub(crate) events: bool,
    pub(crate) huge_pages: bool,
}

/// Marks the ids of sends.
pub(crate) const SENT: u64 = 1 << 63;

/// perftest's.
const Q_KEY: u32 = 0x1111_1111;
const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
