//! Path records in both forms.

use super::plain::{Plain, behind_mut};
use super::structures::ib_path_rec_data;
use super::values::IB_PATH_ALL;
use crate::ib_user_path_rec;

/// A path, as rdma_cm describes that of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathRecord {
    /// GID of the peer.
    pub dgid: [u8; 16],
    /// GID of this end.
    pub sgid: [u8; 16],
    /// Partition key.
    pub pkey: u16,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Code of the path MTU: 1 is 256 bytes, 5 is 4096.
    pub mtu: u8,
    /// Code of the rate.
    pub rate: u8,
    /// Packet life time: 4.096 µs times two to the power of this.
    pub packet_life_time: u8,
}

/// The value is exactly that of the record.
const EQUAL: u8 = 2;

impl PathRecord {
    /// Returns the record as `RDMA_USER_CM_CMD_QUERY_ROUTE` has it.
    pub fn for_user(&self) -> ib_user_path_rec {
        ib_user_path_rec {
            dgid: self.dgid,
            sgid: self.sgid,
            flow_label: self.flow_label.to_be(),
            reversible: 1,
            mtu: u32::from(self.mtu),
            pkey: self.pkey.to_be(),
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            numb_path: 1,
            mtu_selector: EQUAL,
            rate_selector: EQUAL,
            rate: self.rate,
            packet_life_time_selector: EQUAL,
            packet_life_time: self.packet_life_time,
            ..ib_user_path_rec::default()
        }
    }

    /// Returns the record as the subnet administrator writes it, for `RDMA_USER_CM_QUERY_PATH`.
    pub fn packed(&self) -> ib_path_rec_data {
        let mut record = [0; 64];
        self.dgid.write(behind_mut(&mut record, 8));
        self.sgid.write(behind_mut(&mut record, 24));
        let flow = self.flow_label << 8 & 0x0fff_ff00 | u32::from(self.hop_limit);
        flow.to_be_bytes().write(behind_mut(&mut record, 44));
        // Reversible, and one path.
        [self.traffic_class, 0x80 | 1].write(behind_mut(&mut record, 48));
        self.pkey.to_be_bytes().write(behind_mut(&mut record, 50));
        let coded = |value: u8| EQUAL << 6 | value & 0x3f;
        [coded(self.mtu), coded(self.rate), coded(self.packet_life_time)]
            .write(behind_mut(&mut record, 54));
        ib_path_rec_data { flags: IB_PATH_ALL, reserved: 0, path_rec: record }
    }
}
