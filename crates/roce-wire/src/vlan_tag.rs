//! VLAN tags.

/// A VLAN tag.
///
/// ```
/// use roce_wire::VlanTag;
/// let tag = VlanTag::new(100, 3, false).unwrap();
/// assert_eq!(tag.control_information(), [0x60, 100]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct VlanTag(u16);

impl VlanTag {
    /// Creates a tag; `None` if `id` needs more than 12 bits or `priority` more than 3.
    pub const fn new(id: u16, priority: u8, drop_eligible: bool) -> Option<Self> {
        if id < 1 << 12 && priority < 1 << 3 {
            Some(Self((priority as u16) << 13 | (drop_eligible as u16) << 12 | id))
        } else {
            None
        }
    }

    /// Reads the two bytes after the EtherType of a tag; cannot fail.
    pub const fn from_control_information(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes))
    }

    /// Returns the two bytes after the EtherType of a tag.
    pub const fn control_information(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// Returns the VLAN id, 0 ..= 4095.
    pub const fn id(self) -> u16 {
        self.0 & 0xfff
    }

    /// Returns the priority code point, 0 ..= 7.
    pub const fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Returns the drop eligible indicator.
    pub const fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }
}
