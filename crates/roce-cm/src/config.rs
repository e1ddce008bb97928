//! Configuration of an agent.

use std::net::IpAddr;

use roce_wire::PathMtu;
use roce_wire::management::CmTimeout;

/// Configuration of an [`Agent`](crate::Agent).
///
/// ```
/// use roce_cm::{Agent, AgentConfig};
/// use roce_wire::management::CmTimeout;
///
/// // A test that does not wait 98 s for a peer that is silent.
/// let timeout = CmTimeout::from_code(10);
/// let config = AgentConfig::new(1, 1, vec![[10, 0, 0, 1].into()]);
/// let config = AgentConfig { response_timeout: timeout, packet_life_time: timeout, ..config };
/// assert_eq!(Agent::new(config).poll_timeout(), None);
/// ```
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// GUID of the device, by which peers tell devices apart.
    pub ca_guid: u64,
    /// Start of communication ids, transaction numbers and PSNs. It should be random.
    pub seed: u64,
    /// The upper 12 bits of all communication ids. Agents that receive the same datagrams have
    /// different ones.
    pub id_prefix: u16,
    /// Addresses that requests may be sent to.
    pub local_addresses: Vec<IpAddr>,
    /// Largest path MTU of the interface.
    pub path_mtu: PathMtu,
    /// Time in which peers have to answer.
    pub response_timeout: CmTimeout,
    /// Time that a packet takes at most.
    pub packet_life_time: CmTimeout,
    /// Repetitions of a message without answer, 0 ..= 15.
    pub max_retries: u8,
    /// Time until our queue pairs acknowledge.
    pub target_ack_delay: CmTimeout,
    /// Whether [`Agent::poll_change`](crate::Agent::poll_change) tells of changed connections.
    pub keeps_records: bool,
}

impl AgentConfig {
    /// Returns the times and numbers of rdma_cm, for a device with this GUID and these addresses.
    //= rule cm-timeouts: cma.c: CMA_CM_RESPONSE_TIMEOUT; cma.c: CMA_MAX_CM_RETRIES
    //# The response timeout has the code 20, the packet life time 18, and a message is repeated 15 times.
    pub fn new(ca_guid: u64, seed: u64, local_addresses: Vec<IpAddr>) -> Self {
        Self {
            ca_guid,
            seed,
            id_prefix: 0,
            local_addresses,
            path_mtu: PathMtu::B1024,
            response_timeout: CmTimeout::from_code(20),
            packet_life_time: CmTimeout::from_code(18),
            max_retries: 15,
            target_ack_delay: CmTimeout::from_code(15),
            keeps_records: false,
        }
    }
}
