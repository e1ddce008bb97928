//! The queue pairs of one end, and what differs with their service.

use std::net::TcpListener;

use roce_verbs::exchange::{self, QpDest};
use roce_verbs::{
    AddressHandle, AddressVector, CompletionQueue, ConnectOptions, Device, ProtectionDomain, Qpn,
    QueuePair, RecvWr, SendWr, SharedReceiveQueue,
};

use super::service::PingPongService;
use crate::error::{CliError, Result};

/// The queue pairs of one end; all of them take receives from one queue.
#[derive(Debug)]
pub(super) struct QueuePairs {
    service: PingPongService,
    pd: ProtectionDomain,
    all: Vec<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    /// Where datagrams go.
    peer: Option<(AddressHandle, Qpn)>,
}

/// The Q_Key of `ibv_ud_pingpong`.
const Q_KEY: u32 = 0x1111_1111;

impl QueuePairs {
    pub(super) fn new(
        service: PingPongService,
        count: usize,
        rx_depth: u32,
        pd: ProtectionDomain,
        queue: &CompletionQueue,
        options: &ConnectOptions,
    ) -> Result<Self> {
        let is_shared = service == PingPongService::Srq;
        let srq = is_shared.then(|| pd.create_srq(rx_depth, 1)).transpose()?;
        let make = |_| {
            let builder = pd
                .queue_pair(queue, queue)
                .service(service.of_queue_pairs())
                .max_send_wr(1)
                .max_recv_wr(rx_depth)
                .max_send_sge(1)
                .max_recv_sge(1);
            match &srq {
                Some(srq) => builder.srq(srq).build(),
                None => builder.build(),
            }
        };
        let all = (0..count).map(make).collect::<Result<Vec<_>, _>>()?;
        for qp in &all {
            match service {
                PingPongService::Ud => qp.ready_for_datagrams(Q_KEY)?,
                _ => qp.init(options)?,
            }
        }
        Ok(Self { service, pd, all, srq, peer: None })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the first queue pair.
    pub(super) fn first(&self) -> &QueuePair {
        &self.all[0]
    }

    /// Returns the position of a queue pair.
    pub(super) fn position(&self, qpn: Qpn) -> Option<usize> {
        self.all.iter().position(|qp| qp.number() == qpn)
    }

    pub(super) fn dests(&self, gid_index: Option<u8>) -> Result<Vec<QpDest>> {
        Ok(self.all.iter().map(|qp| qp.dest(gid_index)).collect::<Result<_, _>>()?)
    }

    /// Checks that the peer has as many queue pairs, whose addresses it sent.
    pub(super) fn check_peer(&self, theirs: &[QpDest]) -> Result {
        let (own, other) = (self.len(), theirs.iter().filter(|dest| dest.qpn.get() != 0).count());
        if own == other {
            return Ok(());
        }
        Err(CliError::new(format!(
            "-q is {own} here and {other} at the other end; use the same value at both ends"
        )))
    }

    /// Connects to the queue pairs of the peer, if it has as many.
    pub(super) fn connect(
        &mut self,
        theirs: &[QpDest],
        options: &ConnectOptions,
        device: &Device,
    ) -> Result<(), roce_verbs::Error> {
        if self.check_peer(theirs).is_err() {
            return Ok(());
        }
        if self.service != PingPongService::Ud {
            for (qp, peer) in self.all.iter().zip(theirs) {
                qp.connect_from_init(peer, options)?;
            }
            return Ok(());
        }
        let row = options.gid_index.or(device.default_gid_index()?).unwrap_or_default();
        for peer in theirs {
            let traffic_class = options.traffic_class;
            let vector = AddressVector { traffic_class, ..AddressVector::new(row, peer.gid) };
            let ah = self.pd.create_ah(&vector)?;
            self.peer = Some((ah, peer.qpn));
        }
        Ok(())
    }

    /// Exchanges addresses as the client.
    pub(super) fn exchange_as_client(
        &self,
        server: (&str, u16),
        mine: &[QpDest],
        options: &str,
    ) -> Result<(Vec<QpDest>, Option<String>), exchange::ExchangeError> {
        exchange::connect_many(server, mine, self.service.lines(), options)
    }

    /// Exchanges addresses as the server, which connects before it replies.
    pub(super) fn exchange_as_server(
        &mut self,
        listener: &TcpListener,
        mine: &[QpDest],
        options: &str,
        connect: &ConnectOptions,
        device: &Device,
    ) -> Result<(Vec<QpDest>, Option<String>), exchange::ExchangeError> {
        exchange::accept_many(listener, self.service.lines(), options, |theirs| {
            self.connect(theirs, connect, device).map(|()| mine.to_vec())
        })
    }

    pub(super) fn post_recv(&self, work: impl Iterator<Item = RecvWr>) -> Result {
        match &self.srq {
            Some(srq) => srq.post_recv(work)?,
            None => self.all[0].post_recv(work)?,
        }
        Ok(())
    }

    pub(super) fn post_send(&self, index: usize, work: SendWr) -> Result {
        match &self.peer {
            Some((ah, qpn)) => self.all[index].post_send_to([work], ah, *qpn, Q_KEY)?,
            None => self.all[index].post_send([work])?,
        }
        Ok(())
    }

    /// Checks the number of queue pairs against the receives that they share.
    pub(super) fn check_count(count: u32, rx_depth: u32) -> Result {
        if count > rx_depth {
            return Err(CliError::new(format!(
                "{rx_depth} receives are too few for {count} queue pairs: raise -r or lower -q"
            )));
        }
        Ok(())
    }
}
