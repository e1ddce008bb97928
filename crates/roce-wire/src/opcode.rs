//! Opcodes: the table used by parser, emitter, dissector and sequence check.

use core::fmt;

use crate::{
    AETH_LEN, ATOMIC_ACK_ETH_LEN, ATOMIC_ETH_LEN, BTH_LEN, DETH_LEN, FETH_LEN, IMMEDIATE_LEN,
    INVALIDATE_KEY_LEN, RETH_LEN,
};

/// BTH opcode, known or not.
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

/// An opcode in the table, so that it has an [`OpcodeInfo`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KnownOpcode(u8);

/// Properties of the packets of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Position in the message.
    pub position: Position,
    /// Extension headers, in order.
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
    /// Congestion notification, for queue pairs of any service.
    Cnp,
    /// Packets of no standard, which endpoints of this project send to each other.
    Extension,
}

/// Operation of a packet.
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
    /// Makes earlier WRITEs visible or persistent.
    Flush,
    /// Stores a word of [`ATOMIC_WRITE_LEN`] bytes at once.
    AtomicWrite,
    /// Congestion notification.
    Cnp,
    /// Report of gaps: see [`GapReport`](crate::GapReport).
    GapReport,
}

/// Position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Position {
    First = 0b01,
    Middle = 0b00,
    Last = 0b10,
    /// First and last.
    Only = 0b11,
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
    /// The reserved bytes of a CNP: sent as zeros, ignored when received.
    CnpReserved,
    Feth,
}

/// Extension of the last packet of a SEND or WRITE for the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Trailer {
    /// None.
    #[default]
    None,
    /// Immediate data.
    Immediate,
    /// Key to invalidate.
    InvalidateKey,
}

/// One row for each opcode: code, constant, name, service, operation, position, extensions.
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

//= rule wire-opcodes: InfiniBand 9.2; rxe_opcode.c: rxe_opcode
//# Codes of the operations of each service, and the extension headers behind the BTH.
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
    0x1c RC_FLUSH                    "RC FLUSH"                          Rc Flush        Only   [Feth Reth]
    0x1d RC_ATOMIC_WRITE             "RC ATOMIC WRITE"                   Rc AtomicWrite  Only   [Reth]

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

    0xc0 GAP_REPORT                  "gap report"                        Extension GapReport Only []
}

#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    info: OpcodeInfo,
}

/// What is asked of the opcode of each received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpcodeFacts {
    pub(crate) operation: Operation,
    pub(crate) position: Position,
    pub(crate) is_request: bool,
    pub(crate) carries_payload: bool,
    is_known: bool,
    extensions_len: u8,
    /// A bit for each extension header.
    extensions: u16,
}

/// Facts by opcode.
static FACTS: [OpcodeFacts; 256] = {
    let mut all = [OpcodeFacts::UNKNOWN; 256];
    let mut code = 0;
    while code < 256 {
        if let Some(row) = ROWS[code] {
            all[code] = OpcodeFacts::of(row.info);
        }
        code += 1;
    }
    all
};

/// Each service has so many consecutive opcodes.
const OPCODES_PER_SERVICE: u8 = 32;

impl Opcode {
    /// Returns the row of the table; `None` for an unknown opcode.
    pub const fn info(self) -> Option<OpcodeInfo> {
        match ROWS[self.0 as usize] {
            Some(row) => Some(row.info),
            None => None,
        }
    }

    /// Returns the opcode of such packets; `None` if there is none, as for a READ over an
    /// unreliable service.
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
        let first = service.first_opcode();
        (first..first + OPCODES_PER_SERVICE).filter_map(|code| KnownOpcode::new(Opcode(code))).find(
            |opcode| {
                let info = opcode.info();
                info.operation == operation
                    && info.position == position
                    && info.trailer() == trailer
            },
        )
    }
}

impl OpcodeFacts {
    const UNKNOWN: Self = Self {
        operation: Operation::Cnp,
        position: Position::Only,
        is_request: false,
        carries_payload: false,
        is_known: false,
        extensions_len: 0,
        extensions: 0,
    };

    const fn of(info: OpcodeInfo) -> Self {
        let (mut extensions, mut i) = (0, 0);
        while i < info.extensions.len() {
            extensions |= info.extensions[i].bit();
            i += 1;
        }
        Self {
            operation: info.operation,
            position: info.position,
            is_request: info.is_request(),
            carries_payload: info.carries_payload(),
            is_known: true,
            extensions_len: (info.headers_len() - BTH_LEN) as u8, // at most 28
            extensions,
        }
    }

    /// Length of the extension headers.
    #[inline]
    pub(crate) const fn extensions_len(self) -> usize {
        self.extensions_len as usize
    }

    /// Returns true if the packet carries extension header `ext`.
    #[inline]
    pub(crate) const fn has(self, ext: Ext) -> bool {
        self.extensions & ext.bit() != 0
    }
}

impl KnownOpcode {
    /// Creates one; `None` for an unknown opcode.
    #[inline]
    pub const fn new(opcode: Opcode) -> Option<Self> {
        if FACTS[opcode.0 as usize].is_known { Some(Self(opcode.0)) } else { None }
    }

    /// Returns the opcode of the same packets of another service; `None` where that has none.
    ///
    /// ```
    /// use roce_wire::{Service, opcode};
    /// assert_eq!(opcode::RC_SEND_ONLY.for_service(Service::Uc), Some(opcode::UC_SEND_ONLY));
    /// assert_eq!(opcode::RC_READ_REQUEST.for_service(Service::Uc), None);
    /// ```
    pub const fn for_service(self, service: Service) -> Option<Self> {
        Self::new(Opcode(self.0 % OPCODES_PER_SERVICE + service.first_opcode()))
    }

    /// Returns the opcodes in the table, in order of their codes.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).filter_map(|code| Self::new(Opcode(code)))
    }

    /// Returns the opcode.
    pub const fn code(self) -> Opcode {
        Opcode(self.0)
    }

    /// Returns the row of the table.
    pub const fn info(self) -> OpcodeInfo {
        self.row().info
    }

    /// Returns the service.
    pub const fn service(self) -> Service {
        match self.0 / OPCODES_PER_SERVICE {
            0 => Service::Rc,
            1 => Service::Uc,
            3 => Service::Ud,
            4 => Service::Cnp,
            _ => Service::Extension,
        }
    }

    /// Returns [`OpcodeInfo::headers_len`], from a table.
    pub const fn headers_len(self) -> usize {
        BTH_LEN + self.facts().extensions_len()
    }

    /// The opcode with this code, which [`new`](Self::new) has taken before.
    #[inline]
    pub(crate) const fn of_known(opcode: Opcode) -> Self {
        Self(opcode.0)
    }

    #[inline]
    pub(crate) const fn facts(self) -> OpcodeFacts {
        FACTS[self.0 as usize]
    }

    /// Returns the specification's name, if it has one.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    const fn row(self) -> Row {
        ROWS[self.0 as usize].expect("only a code with a row becomes a KnownOpcode")
    }
}

impl OpcodeInfo {
    /// Returns the length of BTH and extension headers in bytes.
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

    /// Returns the extension for the peer's completion.
    pub fn trailer(self) -> Trailer {
        match self.extensions.last() {
            Some(Ext::Immediate) => Trailer::Immediate,
            Some(Ext::InvalidateKey) => Trailer::InvalidateKey,
            _ => Trailer::None,
        }
    }

    /// Returns true if payload may follow the headers.
    pub const fn carries_payload(self) -> bool {
        matches!(
            self.operation,
            Operation::Send
                | Operation::Write
                | Operation::AtomicWrite
                | Operation::ReadResponse
                | Operation::GapReport
        )
    }

    /// Returns true for requests; false for responses, CNPs and gap reports.
    pub const fn is_request(self) -> bool {
        matches!(
            self.operation,
            Operation::Send
                | Operation::Write
                | Operation::ReadRequest
                | Operation::CompareSwap
                | Operation::FetchAdd
                | Operation::Flush
                | Operation::AtomicWrite
        )
    }

    /// Returns true for responses.
    pub const fn is_response(self) -> bool {
        matches!(
            self.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAck
        )
    }

    /// Returns true if such a packet may directly follow one of `before`.
    //= rule wire-message-order: InfiniBand 9.7.4; rxe_resp.c: check_op_seq
    //# A message is First, Middle packets and Last of one operation, or Only. Another message
    //# begins behind its end.
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
    /// Returns true if the message begins with this packet.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns true if the message ends with this packet.
    pub const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Returns true if another packet of the message follows.
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
            Self::Extension => 0xc0,
        }
    }
}

impl Ext {
    const fn bit(self) -> u16 {
        1 << self as u16
    }

    /// Returns the length on the wire in bytes.
    pub const fn wire_len(self) -> usize {
        match self {
            Self::Reth => RETH_LEN,
            Self::Feth => FETH_LEN,
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

/// Payload of an ATOMIC WRITE, in bytes.
//= rule wire-atomic-write: InfiniBand oA19-28; rxe_opcode.c: rxe_opcode
//# An ATOMIC WRITE is one packet with a RETH and eight bytes of payload, a word as it stands in memory.
pub const ATOMIC_WRITE_LEN: usize = 8;

/// Length of the reserved part of a CNP, in bytes.
//= rule wire-cnp: RoCEv2, clause not known
//# A congestion notification has opcode 0x81, BECN, and 16 reserved bytes, and is not acknowledged.
pub const CNP_RESERVED_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    //= test wire-opcodes
    #[test]
    fn header_lengths_match_captured_packets() {
        let len = |opcode: KnownOpcode| opcode.info().headers_len();
        assert_eq!(len(RC_SEND_FIRST), 12);
        assert_eq!(len(RC_SEND_LAST_INVALIDATE), 16);
        assert_eq!(len(RC_WRITE_FIRST), 28);
        assert_eq!(len(RC_WRITE_ONLY_IMMEDIATE), 32);
        assert_eq!(len(RC_READ_RESPONSE_MIDDLE), 12);
        assert_eq!(len(RC_READ_RESPONSE_LAST), 16);
        assert_eq!(len(RC_ATOMIC_ACKNOWLEDGE), 24);
        assert_eq!(len(RC_COMPARE_SWAP), 40);
        assert_eq!(len(RC_FLUSH), 32);
        assert_eq!(len(RC_ATOMIC_WRITE), 28);
        assert_eq!(len(UD_SEND_ONLY_IMMEDIATE), 24);
        assert_eq!(len(CNP), 28);
    }

    //= test wire-atomic-write
    #[test]
    fn an_atomic_write_is_one_packet_with_payload_and_a_flush_has_none() {
        for (opcode, carries) in [(RC_ATOMIC_WRITE, true), (RC_FLUSH, false)] {
            let info = opcode.info();
            assert_eq!(info.position, Position::Only);
            assert_eq!(info.carries_payload(), carries);
            assert!(info.is_request() && info.has(Ext::Reth));
            assert_eq!(opcode.for_service(Service::Uc), None);
        }
        assert_eq!((RC_FLUSH.code(), RC_ATOMIC_WRITE.code()), (Opcode(0x1c), Opcode(0x1d)));
        assert_eq!(ATOMIC_WRITE_LEN, size_of::<u64>());
    }

    #[test]
    fn every_row_finds_its_opcode() {
        for opcode in KnownOpcode::all() {
            let OpcodeInfo { service, operation, position, .. } = opcode.info();
            assert_eq!(opcode.service(), service);
            let found = Opcode::find(service, operation, position, opcode.info().trailer());
            assert_eq!(found, Some(opcode));
        }
        assert_eq!(KnownOpcode::all().count(), 25 + 12 + 2 + 2);
    }

    #[test]
    fn an_operation_that_a_service_lacks_has_no_opcode() {
        use {Operation::*, Position::*};
        assert_eq!(Opcode::find(Service::Uc, ReadRequest, Only, Trailer::None), None);
        assert_eq!(Opcode::find(Service::Rc, Write, Last, Trailer::InvalidateKey), None);
        assert_eq!(Opcode::find(Service::Ud, Send, First, Trailer::None), None);
    }

    #[test]
    fn a_name_has_the_service_and_the_position() {
        for opcode in KnownOpcode::all() {
            let OpcodeInfo { service, position, operation, .. } = opcode.info();
            let service = format!("{service:?}").to_uppercase();
            let is_named = opcode == GAP_REPORT || opcode.name().starts_with(&service);
            assert!(is_named, "{opcode:?}");
            if matches!(operation, Operation::Send | Operation::Write | Operation::ReadResponse) {
                assert!(opcode.name().contains(&format!("{position:?}")), "{opcode:?}");
            }
        }
    }

    //= test wire-message-order
    #[test]
    fn a_message_is_continued_only_by_its_own_kind() {
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
        for opcode in KnownOpcode::all() {
            let kinds = [opcode.info().is_request(), opcode.info().is_response()];
            let is_neither = matches!(opcode, CNP | GAP_REPORT);
            assert_eq!(kinds.map(u8::from).iter().sum::<u8>(), u8::from(!is_neither), "{opcode:?}");
        }
    }
}
