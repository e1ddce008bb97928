//! The usual transitions of a queue pair from RESET to RTS.

use roce_transport::{AccessFlags, AckTimeout, ModifyError, QpAttributes, QpState, Service};
use roce_wire::{Gid, PathMtu, Psn, Qpn, RnrTimer};

use crate::error::Error;
use crate::exchange::QpDest;
use crate::path::{AddressVector, resolve, usable_gid};
use crate::queue_pair::QueuePair;

/// The parameters of a connection; the defaults are those of `ibv_rc_pingpong`, with all remote
/// access allowed. An unreliable connection has no ACKs, READs and atomics: their parameters do not
/// count.
///
/// ```
/// use roce_verbs::ConnectOptions;
///
/// let options = ConnectOptions { retry_count: 7, ..ConnectOptions::default() };
/// assert_eq!(options.rnr_retry, 7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Row of the own GID table; the device's default row when `None`.
    pub gid_index: Option<u8>,
    /// Largest payload of a packet, the same at both ends. The largest that the interface
    /// carries when `None`, which fits only where the peer's interface carries it too.
    pub path_mtu: Option<PathMtu>,
    /// Rights of the peer.
    pub access: AccessFlags,
    /// ACK timeout: 4.096 µs · 2^n; 0 is infinite.
    pub timeout: u8,
    /// Retries after an ACK timeout, 0..=7.
    pub retry_count: u8,
    /// Retries after an RNR NAK, 0..=6; 7 is infinite.
    pub rnr_retry: u8,
    /// Wait that an RNR NAK of this end asks of the peer.
    pub min_rnr_timer: RnrTimer,
    /// Most outstanding READs and atomics to the peer.
    pub max_rd_atomic: u8,
    /// Most outstanding READs and atomics of the peer.
    pub max_dest_rd_atomic: u8,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// Static rate of an unreliable connection; see [`AddressVector::max_rate`].
    pub max_rate: Option<u64>,
    /// The peer sets this too, and is a queue pair of this crate: both report gaps with packets of no
    /// standard, so that a loss costs one packet. The two ends agree on it over a channel of their own.
    pub gap_reports: bool,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            gid_index: None,
            path_mtu: None,
            access: AccessFlags::LOCAL_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_ATOMIC
                | AccessFlags::FLUSH_GLOBAL,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::DEFAULT,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            traffic_class: 0,
            hop_limit: 64,
            max_rate: None,
            gap_reports: false,
        }
    }
}

impl QueuePair {
    /// Returns the destination to which the peer connects, with the address of row `gid_index` (the
    /// default row when `None`).
    ///
    /// Each connection starts at a PSN of its own: a queue pair that was reset, or that is in
    /// state ERR, has another destination than before, which the peer needs. See
    /// [`first_psn`](Self::first_psn).
    ///
    /// # Errors
    /// [`Error::NoSuchGid`], [`Error::NoAddress`], [`Error::Forked`].
    pub fn dest(&self, gid_index: Option<u8>) -> Result<QpDest, Error> {
        let gid = usable_gid(&self.driver, gid_index)?.gid;
        Ok(QpDest { qpn: self.number(), psn: self.first_psn(), gid })
    }

    /// Moves an RC or UC queue pair from RESET through INIT and RTR to RTS, connected to `peer`.
    ///
    /// Both ends call this with the other's [`dest`](Self::dest). Receives for the first messages are
    /// posted between [`init`](Self::init) and [`connect_from_init`](Self::connect_from_init).
    ///
    /// # Errors
    /// [`Error::Route`] when the peer's address cannot be reached, and those of
    /// [`modify`](Self::modify).
    pub fn connect(&self, peer: &QpDest, options: &ConnectOptions) -> Result<(), Error> {
        self.init(options)?;
        self.connect_from_init(peer, options)
    }

    /// Moves the queue pair from RESET to INIT, in which receives can be posted.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn init(&self, options: &ConnectOptions) -> Result<(), Error> {
        self.modify(&QpAttributes::init(options.access))
    }

    /// Moves the queue pair from INIT through RTR to RTS.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_from_init(&self, peer: &QpDest, options: &ConnectOptions) -> Result<(), Error> {
        self.ready_to_receive(peer.qpn, peer.psn, peer.gid, options)?;
        let to_send = QpAttributes::ready_to_send(self.first_psn());
        if self.service() != Service::Rc {
            return self.modify(&to_send);
        }
        let timeout = AckTimeout::new(options.timeout);
        let timeout = timeout.ok_or(ModifyError::OutOfRange { attribute: "timeout" })?;
        self.modify(&QpAttributes {
            ack_timeout: Some(timeout),
            retry_count: Some(options.retry_count),
            rnr_retry: Some(options.rnr_retry),
            max_rd_atomic: Some(options.max_rd_atomic),
            ..to_send
        })
    }

    /// Moves a UD queue pair from RESET through INIT and RTR to RTS. From RTR on it takes the
    /// datagrams that carry `q_key`, from any queue pair.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn ready_for_datagrams(&self, q_key: u32) -> Result<(), Error> {
        self.modify(&QpAttributes::init_of_datagrams(q_key))?;
        let state = Some(QpState::ReadyToReceive);
        self.modify(&QpAttributes { state, ..QpAttributes::default() })?;
        self.modify(&QpAttributes::ready_to_send(self.first_psn()))
    }

    fn ready_to_receive(
        &self,
        peer: Qpn,
        first_psn: Psn,
        gid: Gid,
        options: &ConnectOptions,
    ) -> Result<(), Error> {
        let row = usable_gid(&self.driver, options.gid_index)?;
        let vector = AddressVector {
            traffic_class: options.traffic_class,
            hop_limit: options.hop_limit,
            max_rate: options.max_rate,
            ..AddressVector::new(row.index, gid)
        };
        let path = resolve(&self.driver, &vector)?;
        let path_mtu = match options.path_mtu.or_else(|| self.driver.port().active_mtu()) {
            Some(mtu) => mtu,
            None => return Err(Error::path_mtu_too_large(PathMtu::B256, self.driver.port())),
        };
        let attributes = QpAttributes {
            max_dest_rd_atomic: Some(options.max_dest_rd_atomic),
            min_rnr_timer: Some(options.min_rnr_timer),
            gap_reports: options.gap_reports.then_some(true),
            ..QpAttributes::ready_to_receive(path.attributes(), path_mtu, peer, first_psn)
        };
        self.modify(&attributes.of_service(self.service()))
    }
}
