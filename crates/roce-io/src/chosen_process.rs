//! One process of this user among those of a network namespace.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, Type};

use crate::sockets::abstract_address;
use crate::sys::{self, socket::Socket};

/// Chooses one process of each user among those of a network namespace that ask for the same name.
///
/// The one that is chosen listens at an abstract unix socket of that name until it ends. Any user can bind such a
/// name, so each other process connects and asks the kernel for the user that has it. Beside a name of another user, the
/// superuser's apart, every process counts as chosen. No connection is kept: every user can make as many as it likes.
///
/// ```
/// use roce_io::ChosenProcess;
///
/// let name = format!("roce-io/chosen/{}", std::process::id());
/// let (mut one, mut other) = (ChosenProcess::new(name.clone()), ChosenProcess::new(name));
/// assert!(one.is_this() && !other.is_this());
/// drop(one);
/// assert!(other.is_this());
/// ```
#[derive(Debug)]
pub struct ChosenProcess {
    name: String,
    /// In the process that is chosen.
    listener: Option<Socket>,
}

/// Connections that may wait. A process that finds no room counts as chosen, too.
const MAX_WAITING: i32 = 1024;
/// Connections that are ended at a time.
const MAX_ENDED_AT_ONCE: usize = 16;
/// The superuser, who may do all that a name is good for anyway.
const ROOT: u32 = 0;

impl ChosenProcess {
    /// Makes one that looks at nothing yet.
    pub fn new(name: String) -> Self {
        Self { name, listener: None }
    }

    /// Returns true if this process is chosen, by names of this thread's network namespace. Costs a few calls of the
    /// kernel, and never waits.
    pub fn is_this(&mut self) -> bool {
        match &self.listener {
            Some(listener) => end_connections(listener),
            None => match self.look() {
                Ok(Found::Name(listener)) => self.listener = Some(listener),
                Ok(Found::Another) => return false,
                Ok(Found::Stranger) | Err(_) => {}
            },
        }
        true
    }

    /// Binds the name, or asks for the user that has it.
    fn look(&self) -> io::Result<Found> {
        let address = abstract_address(&self.name)?;
        let socket = sys::socket::open(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.set_nonblocking(true)?;
        match socket.bind(&address) {
            Ok(()) => {
                socket.listen(MAX_WAITING)?;
                return Ok(Found::Name(socket));
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
        socket.connect(&address)?;
        let user = sys::passing::peer_user(socket.as_fd())?;
        match user == ROOT || sys::passing::is_own_user(user) {
            true => Ok(Found::Another),
            false => Ok(Found::Stranger),
        }
    }
}

/// What a process finds that is not chosen yet.
enum Found {
    /// Nothing else had the name; this listens at it now.
    Name(Socket),
    /// A process of this user, or of the superuser.
    Another,
    Stranger,
}

/// Makes room for other connections.
fn end_connections(listener: &Socket) {
    for _ in 0..MAX_ENDED_AT_ONCE {
        let accepted = crate::process::Own::make(|| listener.accept().map(|(socket, _)| socket));
        if accepted.is_err() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn of_those_that_ask_one_is_chosen_and_another_when_it_is_gone() {
        let name = format!("roce-io/chosen/tests/{}", std::process::id());
        let mut all: Vec<_> = (0..5).map(|_| ChosenProcess::new(name.clone())).collect();
        while !all.is_empty() {
            for _ in 0..3 {
                let chosen = all.iter_mut().map(ChosenProcess::is_this).collect::<Vec<_>>();
                assert_eq!(chosen.iter().filter(|it| **it).count(), 1, "{chosen:?}");
                assert!(chosen[0]);
            }
            all.remove(0);
        }
    }

    #[test]
    fn a_name_that_cannot_be_asked_for_its_user_keeps_none_from_being_chosen() {
        let name = format!("roce-io/chosen/other/{}", std::process::id());
        let _taken = crate::sockets::bind_abstract(&name).unwrap();
        for _ in 0..2 {
            assert!(ChosenProcess::new(name.clone()).is_this());
        }
    }

    #[test]
    fn connections_of_others_use_up_no_descriptor_and_no_time() {
        let name = format!("roce-io/chosen/many/{}", std::process::id());
        let mut chosen = ChosenProcess::new(name.clone());
        assert!(chosen.is_this());
        let connect = || {
            let socket = socket2::Socket::new(Domain::UNIX, Type::SEQPACKET, None).unwrap();
            socket.connect(&abstract_address(&name).unwrap()).map(|()| socket)
        };
        let mut kept: Vec<_> = (0..3 * MAX_ENDED_AT_ONCE).map(|_| connect().unwrap()).collect();
        let is_ended = |socket: &mut socket2::Socket| {
            socket.set_nonblocking(true).unwrap();
            socket.read(&mut [0]).is_ok()
        };
        for round in 0..=3 {
            let ended = kept.iter_mut().filter_map(|it| is_ended(it).then_some(())).count();
            assert_eq!(ended, round * MAX_ENDED_AT_ONCE);
            assert!(chosen.is_this());
        }
        // Nor is there an end to those that come and go.
        for _ in 0..2 * MAX_WAITING {
            assert!(!ChosenProcess::new(name.clone()).is_this());
            assert!(chosen.is_this());
        }
    }
}
