//! Which message a REJ or an MRA answers.

/// The message that a REJ or an MRA answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AnsweredMessage {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// In an MRA a LAP; in a REJ another message, or none.
    Other = 2,
    /// A value without meaning.
    Reserved = 3,
}

impl AnsweredMessage {
    /// Returns the message of the two low bits of `code`.
    pub const fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    /// Returns the code, 0 ..= 3.
    pub const fn code(self) -> u8 {
        self as u8
    }
}
