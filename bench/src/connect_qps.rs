//! Connects the queue pairs of two programs: the first with the first, the second with the second.

use roce_verbs::exchange::QpDest;
use roce_verbs::{ConnectOptions, Gid, Psn, Qpn, QueuePair};
use serde::{Deserialize, Serialize};

use crate::control_channel::ControlChannel;
use crate::program::Failure;

/// The address of a queue pair.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Name {
    number: u32,
    first_psn: u32,
    gid: [u8; 16],
}

/// Connects each queue pair to the peer's of the same index; the other end does the same with as many.
///
/// # Errors
/// The other end is gone or has others, or no packet gets there.
pub fn connect(mine: &[QueuePair], control: &mut ControlChannel) -> Result<(), Failure> {
    let options = ConnectOptions::default();
    // In chunks, since a line has a maximum length.
    for some in mine.chunks(AT_A_TIME) {
        let name = |qp: &QueuePair| {
            let mine = qp.dest(None)?;
            Ok::<_, roce_verbs::Error>(Name {
                number: mine.qpn.get(),
                first_psn: mine.psn.get(),
                gid: mine.gid.0,
            })
        };
        let names: Vec<Name> = some.iter().map(name).collect::<Result<_, _>>().map_err(refused)?;
        control.send(&names)?;
        let theirs: Vec<Name> = control.receive()?;
        if theirs.len() != some.len() {
            return Err(Failure::told("the other end has another number of queue pairs"));
        }
        for (qp, name) in some.iter().zip(&theirs) {
            let impossible = || Failure::told("the other end sent an invalid queue pair");
            let peer = QpDest {
                qpn: Qpn::new(name.number).ok_or_else(impossible)?,
                psn: Psn::new(name.first_psn).ok_or_else(impossible)?,
                gid: Gid(name.gid),
            };
            qp.connect(&peer, &options).map_err(refused)?;
        }
    }
    Ok(())
}

/// For `map_err`: the stack refused.
pub fn refused(error: impl std::error::Error) -> Failure {
    Failure::told(error.to_string())
}

/// A name has at most about 100 bytes.
const AT_A_TIME: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_names_as_travel_at_a_time_fit_a_line() {
        let name = Name { number: 0xff_ffff, first_psn: 0xff_ffff, gid: [255; 16] };
        let line = serde_json::to_string(&vec![name; AT_A_TIME]).unwrap();
        assert!(line.len() < 1 << 16, "{}", line.len());
    }
}
