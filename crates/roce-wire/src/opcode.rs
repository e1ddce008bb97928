//! Opcodes: the one table behind parser, emitter, dissector and sequence check.

use core::fmt;

use crate::{
    AETH_LEN, ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, BTH_LEN, DETH_LEN, IMMEDIATE_LEN,
    INVALIDATE_KEY_LEN, RETH_LEN,
};

/// BTH opcode as sent: all 256 values can be held, so unknown ones can be shown.
///
/// ```
/// use roce_wire::{Opcode, Operation, Position, opcode};
/// let info = Opcode(0x06).info().unwrap();
/// assert_eq!((info.operation, info.position), (Operation::Write, Position::First));
/// assert_eq!(opcode::RC_WRITE_FIRST.name(), "RC RDMA WRITE First");
/// assert_eq!(Opcode(0x15).info(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// An opcode that has a row in the table: asking for its [`OpcodeInfo`] cannot fail.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KnownOpcode(u8);

/// What an opcode says about its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// The transport service that the packet belongs to.
    pub service: Service,
    /// What the packet asks for or answers.
    pub operation: Operation,
    /// Where in its message the packet stands.
    pub position: Position,
    /// Extension headers, in the order in which they follow the BTH.
    pub extensions: &'static [Ext],
}

/// Transport service: the top three bits of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification: belongs to no service, and names a queue pair of any.
    Cnp,
}

/// What a packet asks for or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Operation {
    Send,
    Write,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAck,
    CompareSwap,
    FetchAdd,
    /// Congestion notification.
    Cnp,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Position {
    First,
    Middle,
    Last,
    /// First and last at once.
    Only,
}

/// Extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Ext {
    Reth,
    AtomicEth,
    Aeth,
    AtomicAckEth,
    Deth,
    Immediate,
    InvalidateKey,
    /// The reserved bytes of a CNP: sent as zeros, accepted whatever they hold.
    CnpReserved,
}

/// What the last packet of a SEND or WRITE carries besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Trailer {
    /// Nothing.
    #[default]
    None,
    /// Four bytes for the peer's completion.
    Immediate,
    /// A key of the peer to be invalidated.
    InvalidateKey,
}

/// One row for each opcode: code, constant, name, info.
macro_rules! table {
    ($( $code:literal $constant:ident $name:literal
        $service:ident $operation:ident $position:ident [$($ext:ident)*] )*) => {
        $(
            #[doc = concat!($name, ".")]
            pub const $constant: KnownOpcode = KnownOpcode($code);
        )*

        static ROWS: [Option<Row>; 256] = {
            let mut rows = [None; 256];
            $(
                rows[$code] = Some(Row {
                    name: $name,
                    info: OpcodeInfo {
                        service: Service::$service,
                        operation: Operation::$operation,
                        position: Position::$position,
                        extensions: &[$(Ext::$ext),*],
                    },
                });
            )*
            rows
        };
    };
}

table! {
    0x00 RC_SEND_FIRST               "RC SEND First"                     Rc Send         First  []
    0x01 RC_SEND_MIDDLE              "RC SEND Middle"                    Rc Send         Middle []
    0x02 RC_SEND_LAST                "RC SEND Last"                      Rc Send         Last   []
    0x03 RC_SEND_LAST_IMMEDIATE      "RC SEND Last with Immediate"       Rc Send         Last   [Immediate]
    0x04 RC_SEND_ONLY                "RC SEND Only"                      Rc Send         Only   []
    0x05 RC_SEND_ONLY_IMMEDIATE      "RC SEND Only with Immediate"       Rc Send         Only   [Immediate]
    0x06 RC_WRITE_FIRST              "RC RDMA WRITE First"               Rc Write        First  [Reth]
    0x07 RC_WRITE_MIDDLE             "RC RDMA WRITE Middle"              Rc Write        Middle []
    0x08 RC_WRITE_LAST               "RC RDMA WRITE Last"                Rc Write        Last   []
    0x09 RC_WRITE_LAST_IMMEDIATE     "RC RDMA WRITE Last with Immediate" Rc Write        Last   [Immediate]
    0x0a RC_WRITE_ONLY               "RC RDMA WRITE Only"                Rc Write        Only   [Reth]
    0x0b RC_WRITE_ONLY_IMMEDIATE     "RC RDMA WRITE Only with Immediate" Rc Write        Only   [Reth Immediate]
    0x0c RC_READ_REQUEST             "RC RDMA READ Request"              Rc ReadRequest  Only   [Reth]
    0x0d RC_READ_RESPONSE_FIRST      "RC RDMA READ response First"       Rc ReadResponse First  [Aeth]
    0x0e RC_READ_RESPONSE_MIDDLE     "RC RDMA READ response Middle"      Rc ReadResponse Middle []
    0x0f RC_READ_RESPONSE_LAST       "RC RDMA READ response Last"        Rc ReadResponse Last   [Aeth]
    0x10 RC_READ_RESPONSE_ONLY       "RC RDMA READ response Only"        Rc ReadResponse Only   [Aeth]
    0x11 RC_ACKNOWLEDGE              "RC Acknowledge"                    Rc Acknowledge  Only   [Aeth]
    0x12 RC_ATOMIC_ACKNOWLEDGE       "RC ATOMIC Acknowledge"             Rc AtomicAck    Only   [Aeth AtomicAckEth]
    0x13 RC_COMPARE_SWAP             "RC CmpSwap"                        Rc CompareSwap  Only   [AtomicEth]
    0x14 RC_FETCH_ADD                "RC FetchAdd"                       Rc FetchAdd     Only   [AtomicEth]
    0x16 RC_SEND_LAST_INVALIDATE     "RC SEND Last with Invalidate"      Rc Send         Last   [InvalidateKey]
    0x17 RC_SEND_ONLY_INVALIDATE     "RC SEND Only with Invalidate"      Rc Send         Only   [InvalidateKey]

    0x20 UC_SEND_FIRST               "UC SEND First"                     Uc Send         First  []
    0x21 UC_SEND_MIDDLE              "UC SEND Middle"                    Uc Send         Middle []
    0x22 UC_SEND_LAST                "UC SEND Last"                      Uc Send         Last   []
    0x23 UC_SEND_LAST_IMMEDIATE      "UC SEND Last with Immediate"       Uc Send         Last   [Immediate]
    0x24 UC_SEND_ONLY                "UC SEND Only"                      Uc Send         Only   []
    0x25 UC_SEND_ONLY_IMMEDIATE      "UC SEND Only with Immediate"       Uc Send         Only   [Immediate]
    0x26 UC_WRITE_FIRST              "UC RDMA WRITE First"               Uc Write        First  [Reth]
    0x27 UC_WRITE_MIDDLE             "UC RDMA WRITE Middle"              Uc Write        Middle []
    0x28 UC_WRITE_LAST               "UC RDMA WRITE Last"                Uc Write        Last   []
    0x29 UC_WRITE_LAST_IMMEDIATE     "UC RDMA WRITE Last with Immediate" Uc Write        Last   [Immediate]
    0x2a UC_WRITE_ONLY               "UC RDMA WRITE Only"                Uc Write        Only   [Reth]
    0x2b UC_WRITE_ONLY_IMMEDIATE     "UC RDMA WRITE Only with Immediate" Uc Write        Only   [Reth Immediate]

    0x64 UD_SEND_ONLY                "UD SEND Only"                      Ud Send         Only   [Deth]
    0x65 UD_SEND_ONLY_IMMEDIATE      "UD SEND Only with Immediate"       Ud Send         Only   [Deth Immediate]

    0x81 CNP                         "CNP"                               Cnp Cnp         Only   [CnpReserved]
}

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    info: OpcodeInfo,
}

/// The bytes of all headers, by opcode: asked for with every packet.
static HEADERS_LEN: [u8; 256] = {
    let mut all = [0; 256];
    let mut code = 0;
    while code < 256 {
        if let Some(row) = ROWS[code] {
            all[code] = row.info.headers_len() as u8; // at most 40
        }
        code += 1;
    }
    all
};

impl Opcode {
    /// What this opcode says about its packet; `None` without a row in the table.
    pub const fn info(self) -> Option<OpcodeInfo> {
        match ROWS[self.0 as usize] {
            Some(row) => Some(row.info),
            None => None,
        }
    }

    /// Returns the opcode of such a packet; `None` where the table has none, as for a
    /// READ over an unreliable service.
    ///
    /// ```
    /// use roce_wire::{Opcode, Operation, Position, Service, Trailer, opcode};
    /// let found =
    ///     Opcode::find(Service::Rc, Operation::Send, Position::Last, Trailer::Immediate);
    /// assert_eq!(found, Some(opcode::RC_SEND_LAST_IMMEDIATE));
    /// ```
    pub fn find(
        service: Service,
        operation: Operation,
        position: Position,
        trailer: Trailer,
    ) -> Option<KnownOpcode> {
        // The opcodes of a service are 32 in a row.
        let first = service.first_opcode();
        (first..first + 32).filter_map(|code| KnownOpcode::new(Opcode(code))).find(|opcode| {
            let info = opcode.info();
            info.operation == operation && info.position == position && info.trailer() == trailer
        })
    }
}

impl KnownOpcode {
    /// `None` without a row in the table.
    pub const fn new(opcode: Opcode) -> Option<Self> {
        match ROWS[opcode.0 as usize] {
            Some(_) => Some(Self(opcode.0)),
            None => None,
        }
    }

    /// Every opcode in the table, in order of their codes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).filter_map(|code| Self::new(Opcode(code)))
    }

    /// The opcode as sent.
    pub const fn code(self) -> Opcode {
        Opcode(self.0)
    }

    /// What this opcode says about its packet.
    pub const fn info(self) -> OpcodeInfo {
        self.row().info
    }

    /// Bytes of BTH and extension headers together: [`OpcodeInfo::headers_len`], looked up.
    pub const fn headers_len(self) -> usize {
        HEADERS_LEN[self.0 as usize] as usize
    }

    /// The name that people know it by.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    const fn row(self) -> Row {
        ROWS[self.0 as usize].expect("only a code with a row becomes a KnownOpcode")
    }
}

impl OpcodeInfo {
    /// Bytes of BTH and extension headers together.
    pub const fn headers_len(self) -> usize {
        let mut len = BTH_LEN;
        let mut i = 0;
        while i < self.extensions.len() {
            len += self.extensions[i].wire_len();
            i += 1;
        }
        len
    }

    /// Returns true if the packet carries extension header `ext`.
    pub fn has(self, ext: Ext) -> bool {
        self.extensions.contains(&ext)
    }

    /// What stands at the end of the headers for the peer's completion.
    pub fn trailer(self) -> Trailer {
        match self.extensions.last() {
            Some(Ext::Immediate) => Trailer::Immediate,
            Some(Ext::InvalidateKey) => Trailer::InvalidateKey,
            _ => Trailer::None,
        }
    }

    /// May payload follow the headers?
    pub const fn carries_payload(self) -> bool {
        matches!(self.operation, Operation::Send | Operation::Write | Operation::ReadResponse)
    }

    /// Does a responder execute it? Otherwise it answers a requester, or is a CNP.
    pub const fn is_request(self) -> bool {
        matches!(
            self.operation,
            Operation::Send
                | Operation::Write
                | Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
        )
    }

    /// Does it answer a requester?
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAck
        )
    }

    /// Returns true if such a packet may directly follow one of `before`.
    pub fn may_follow(self, before: Option<Self>) -> bool {
        let open = before.filter(|b| b.position.opens());
        match (open, self.position) {
            (None, Position::First | Position::Only) => true,
            (Some(b), Position::Middle | Position::Last) => b.operation == self.operation,
            _ => false,
        }
    }
}

impl Position {
    /// Does the message begin with this packet?
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Does the message end with this packet?
    pub const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Must another packet of the message follow?
    pub const fn opens(self) -> bool {
        !self.is_last()
    }
}

impl Service {
    const fn first_opcode(self) -> u8 {
        match self {
            Self::Rc => 0x00,
            Self::Uc => 0x20,
            Self::Ud => 0x60,
            Self::Cnp => 0x80,
        }
    }
}

impl Ext {
    /// Bytes on the wire.
    pub const fn wire_len(self) -> usize {
        match self {
            Self::Reth => RETH_LEN,
            Self::AtomicEth => ATOMIC_ETH_LEN,
            Self::Aeth => AETH_LEN,
            Self::AtomicAckEth => ATOMIC_ACK_ETH_LEN,
            Self::Deth => DETH_LEN,
            Self::Immediate => IMMEDIATE_LEN,
            Self::InvalidateKey => INVALIDATE_KEY_LEN,
            Self::CnpReserved => CNP_RESERVED_LEN,
        }
    }
}

impl From<KnownOpcode> for Opcode {
    fn from(opcode: KnownOpcode) -> Self {
        opcode.code()
    }
}

impl fmt::Display for KnownOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for KnownOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#04x})", self.name(), self.0)
    }
}

/// Length of the reserved part of a CNP, in bytes.
pub const CNP_RESERVED_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lengths_are_those_of_real_packets() {
        let len = |opcode: KnownOpcode| opcode.info().headers_len();
        assert_eq!(len(RC_SEND_FIRST), 12);
        assert_eq!(len(RC_SEND_LAST_INVALIDATE), 16);
        assert_eq!(len(RC_WRITE_FIRST), 28);
        assert_eq!(len(RC_WRITE_ONLY_IMMEDIATE), 32);
        assert_eq!(len(RC_READ_RESPONSE_MIDDLE), 12);
        assert_eq!(len(RC_READ_RESPONSE_LAST), 16);
        assert_eq!(len(RC_ATOMIC_ACKNOWLEDGE), 24);
        assert_eq!(len(RC_COMPARE_SWAP), 40);
        assert_eq!(len(UD_SEND_ONLY_IMMEDIATE), 24);
        assert_eq!(len(CNP), 28);
    }

    #[test]
    fn every_shape_finds_its_own_opcode() {
        for opcode in KnownOpcode::all() {
            let OpcodeInfo { service, operation, position, .. } = opcode.info();
            let found = Opcode::find(service, operation, position, opcode.info().trailer());
            assert_eq!(found, Some(opcode));
        }
        assert_eq!(KnownOpcode::all().count(), 23 + 12 + 2 + 1);
    }

    #[test]
    fn no_opcode_is_found_for_what_a_service_cannot_do() {
        use {Operation::*, Position::*};
        assert_eq!(Opcode::find(Service::Uc, ReadRequest, Only, Trailer::None), None);
        assert_eq!(Opcode::find(Service::Rc, Write, Last, Trailer::InvalidateKey), None);
        assert_eq!(Opcode::find(Service::Ud, Send, First, Trailer::None), None);
    }

    #[test]
    fn a_name_says_the_service_and_the_position() {
        for opcode in KnownOpcode::all() {
            let OpcodeInfo { service, position, operation, .. } = opcode.info();
            let service = format!("{service:?}").to_uppercase();
            assert!(opcode.name().starts_with(&service), "{opcode:?}");
            if matches!(operation, Operation::Send | Operation::Write | Operation::ReadResponse) {
                assert!(opcode.name().contains(&format!("{position:?}")), "{opcode:?}");
            }
        }
    }

    #[test]
    fn an_open_message_is_continued_by_its_own_kind_only() {
        let may =
            |next: KnownOpcode, before: KnownOpcode| next.info().may_follow(Some(before.info()));
        assert!(RC_SEND_FIRST.info().may_follow(None));
        assert!(!RC_SEND_LAST.info().may_follow(None));
        assert!(may(RC_SEND_LAST_IMMEDIATE, RC_SEND_MIDDLE));
        assert!(may(RC_WRITE_FIRST, RC_SEND_LAST));
        assert!(!may(RC_WRITE_LAST, RC_SEND_FIRST));
        assert!(!may(RC_SEND_ONLY, RC_SEND_FIRST));
        assert!(!may(RC_SEND_MIDDLE, RC_SEND_ONLY));
    }

    #[test]
    fn a_packet_is_a_request_or_a_response_and_never_both() {
        for opcode in KnownOpcode::all().filter(|&opcode| opcode != CNP) {
            assert_ne!(opcode.info().is_request(), opcode.info().is_response(), "{opcode:?}");
        }
        assert!(!CNP.info().is_request() && !CNP.info().is_response());
    }
}
