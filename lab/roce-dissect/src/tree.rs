//! Builds the tree of layers of a packet.

mod cm;
mod mad;
mod outer;
mod spec;
mod transport;

pub(crate) use self::mad::{CmMessage, is_management};
pub(crate) use self::spec::{Kind, Spec};

use crate::{Layer, Other, Packet, PacketKind, RoceVersion};

/// Returns the name and the fields of every layer that a packet may have.
pub(crate) fn tables() -> Vec<(&'static str, Vec<Spec>)> {
    let mut tables = Vec::new();
    outer::add_tables(&mut tables);
    transport::add_tables(&mut tables);
    mad::add_tables(&mut tables);
    tables
}

impl Packet<'_> {
    /// Returns all layers with fields and bytes, outermost first.
    ///
    /// For a packet of a train, the outer layers are those of the whole frame. Allocates: not for
    /// the fast path.
    pub fn layers(&self) -> Vec<Layer> {
        let mut layers = Vec::new();
        let Some(link) = outer::link(self, &mut layers) else { return layers };
        match &self.kind {
            PacketKind::Roce(roce) if roce.version == RoceVersion::V1 => {
                layers.push(outer::grh(self.frame.bytes, roce.offsets.ip));
                transport::layers(self, roce, &mut layers);
            }
            PacketKind::Roce(roce) => {
                outer::ip(self, &link, roce.offsets.udp, &mut layers);
                layers.push(outer::udp(self.frame.bytes, roce.offsets.udp, roce.udp_checksum));
                transport::layers(self, roce, &mut layers);
            }
            PacketKind::Pause(pause) => layers.push(outer::pause(self.frame.bytes, pause)),
            PacketKind::Other(Other::Link(_) | Other::EtherType(_)) => {}
            PacketKind::Other(_) => outer::ip(self, &link, link.len, &mut layers),
        }
        layers
    }
}
