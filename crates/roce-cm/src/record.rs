//! What is written down of a connection for the case that its process dies.

use std::net::IpAddr;

use roce_wire::management::CommunicationId;
use roce_wire::{Gid, Qpn};

use crate::addresses::DatagramAddresses;
use crate::connection::{Connection, State};
use crate::duplicates::RemoteKey;
use crate::parameters::NO_QPN;

/// Bytes of a [`ConnectionRecord`].
pub const RECORD_LEN: usize = 72;

/// A connection whose record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The connection.
    pub id: CommunicationId,
    /// Its record; `None` if its peer need not be told of a death any more.
    pub record: Option<ConnectionRecord>,
}

/// What another agent needs to end a connection whose process has died: see
/// [`Agent::end_orphan`](crate::Agent::end_orphan).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    pub(crate) id: CommunicationId,
    pub(crate) state: State,
    pub(crate) addresses: DatagramAddresses,
    pub(crate) traffic_class: u8,
    pub(crate) transaction: u64,
    pub(crate) remote: Option<RemoteKey>,
    pub(crate) local_qpn: Qpn,
    pub(crate) remote_qpn: Option<Qpn>,
}

/// States that have a record, in the order of their codes from 1.
const RECORDED: [State; 7] = [
    State::ReqSent,
    State::ReqReceived,
    State::RepSent,
    State::RepReceived,
    State::Established,
    State::DreqSent,
    State::DreqReceived,
];

impl ConnectionRecord {
    /// Returns the record of a connection; `None` if that has ended.
    pub(crate) fn of(id: CommunicationId, connection: &Connection) -> Option<Self> {
        // What waits behind other requests to the peer is lost with the process.
        let has_left = connection.resend.as_ref().is_none_or(|resend| resend.has_left);
        let state = match connection.state {
            State::DreqSent if !has_left => State::Established,
            state => state,
        };
        RECORDED.contains(&state).then_some(Self {
            id,
            state,
            addresses: connection.addresses,
            traffic_class: connection.traffic_class,
            transaction: connection.transaction,
            remote: connection.remote,
            local_qpn: connection.local_qpn,
            remote_qpn: connection.remote_qpn,
        })
    }

    /// Returns the connection.
    pub fn id(&self) -> CommunicationId {
        self.id
    }

    /// Returns true if the peer has been asked to disconnect.
    pub fn is_disconnecting(&self) -> bool {
        self.state == State::DreqSent
    }

    /// Returns true if the connection was never established: the peer is told of its end by a REJ, which
    /// has no answer.
    pub fn is_half_open(&self) -> bool {
        matches!(
            self.state,
            State::ReqSent | State::ReqReceived | State::RepSent | State::RepReceived
        )
    }

    /// Returns the bytes that [`from_bytes`](Self::from_bytes) reads.
    pub fn to_bytes(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        let state = RECORDED.iter().position(|it| *it == self.state).map_or(0, |at| at as u8 + 1);
        let remote = self.remote.unwrap_or(RemoteKey { ca_guid: 0, id: CommunicationId(0) });
        let ip = |address| Gid::from(address).0;
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.id.0.to_le_bytes());
        put(&[state, self.traffic_class, self.remote.is_some().into(), 0]);
        put(&self.transaction.to_le_bytes());
        put(&remote.ca_guid.to_le_bytes());
        put(&remote.id.0.to_le_bytes());
        put(&self.local_qpn.get().to_le_bytes());
        put(&self.remote_qpn.unwrap_or(NO_QPN).get().to_le_bytes());
        put(&ip(self.addresses.local));
        put(&ip(self.addresses.remote));
        bytes
    }

    /// Returns the record that these bytes are; `None` if they are none.
    ///
    /// ```
    /// use roce_cm::{ConnectionRecord, RECORD_LEN};
    /// assert_eq!(ConnectionRecord::from_bytes(&[0; RECORD_LEN]), None);
    /// ```
    pub fn from_bytes(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let mut rest = &bytes[..];
        let id = CommunicationId(u32::from_le_bytes(take(&mut rest)?));
        let [state, traffic_class, has_remote, _] = take(&mut rest)?;
        let transaction = u64::from_le_bytes(take(&mut rest)?);
        let ca_guid = u64::from_le_bytes(take(&mut rest)?);
        let remote_id = CommunicationId(u32::from_le_bytes(take(&mut rest)?));
        let local_qpn = Qpn::new(u32::from_le_bytes(take(&mut rest)?))?;
        let remote_qpn = Qpn::new(u32::from_le_bytes(take(&mut rest)?))?;
        let [local, remote]: [IpAddr; 2] = [Gid(take(&mut rest)?).ip(), Gid(take(&mut rest)?).ip()];
        let state = *RECORDED.get(usize::from(state).checked_sub(1)?)?;
        // Only a connection whose REQ waits for its answer knows no peer.
        let has_remote = has_remote != 0;
        let is_sound =
            has_remote != (state == State::ReqSent) && local.is_ipv4() == remote.is_ipv4();
        is_sound.then_some(Self {
            id,
            state,
            addresses: DatagramAddresses { local, remote },
            traffic_class,
            transaction,
            remote: has_remote.then_some(RemoteKey { ca_guid, id: remote_id }),
            local_qpn,
            remote_qpn: (remote_qpn != NO_QPN).then_some(remote_qpn),
        })
    }
}

/// Takes a field from the front.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (field, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*field)
}
