//! One process of this user among those of a network namespace.

use std::io::{self, Read};
use std::os::fd::AsFd;

use socket2::{Domain, Type};

use crate::sockets::abstract_address;
use crate::sys::{self, socket::Socket};

/// Chooses one process of each user among those of a network namespace that ask for the same name.
///
/// The one that is chosen takes connections at an abstract unix socket of that name, and the others keep one to it:
/// the kernel ends both with the process. Any user can bind such a name, so each process asks the kernel for the user
/// that has it. Beside a name of another user, the superuser's apart, every process counts as chosen.
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
    state: State,
}

#[derive(Debug)]
enum State {
    Unknown,
    /// This process has the name, and these connections of others.
    This {
        listener: Socket,
        others: Vec<Socket>,
    },
    /// A connection to the one that has it.
    Another(Socket),
}

/// Connections that may wait, and that are kept. A process beyond these counts as chosen, too.
const MAX_OTHERS: usize = 1024;
/// The superuser, who may do all that a name is good for anyway.
const ROOT: u32 = 0;

impl ChosenProcess {
    /// Makes one that looks at nothing yet.
    pub fn new(name: String) -> Self {
        Self { name, state: State::Unknown }
    }

    /// Returns true if this process is chosen, by names of this thread's network namespace. Costs one call of the
    /// kernel once it is decided.
    pub fn is_this(&mut self) -> bool {
        match &mut self.state {
            State::This { listener, others } => {
                take_connections(listener, others);
                return true;
            }
            State::Another(connection) if is_open(connection) => return false,
            _ => {}
        }
        self.state = self.look().unwrap_or(State::Unknown);
        !matches!(self.state, State::Another(_))
    }

    /// Binds the name, or connects to the process that has it.
    fn look(&self) -> io::Result<State> {
        let address = abstract_address(&self.name)?;
        let socket = sys::socket::open(Domain::UNIX, Type::SEQPACKET, None)?;
        socket.set_nonblocking(true)?;
        match socket.bind(&address) {
            Ok(()) => {
                socket.listen(MAX_OTHERS as i32)?;
                return Ok(State::This { listener: socket, others: Vec::new() });
            }
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => return Err(error),
            Err(_) => {}
        }
        socket.connect(&address)?;
        let user = sys::passing::peer_user(socket.as_fd())?;
        match user == ROOT || sys::passing::is_own_user(user) {
            true => Ok(State::Another(socket)),
            false => Ok(State::Unknown),
        }
    }
}

/// Takes the connections that wait, and closes those that their processes have ended once they are many.
fn take_connections(listener: &Socket, others: &mut Vec<Socket>) {
    while let Ok(accepted) =
        crate::process::Own::make(|| listener.accept().map(|(socket, _)| socket))
    {
        if accepted.set_nonblocking(true).is_err() {
            continue;
        }
        if others.len() >= MAX_OTHERS {
            others.retain(is_open);
        }
        if others.len() < MAX_OTHERS {
            others.push(accepted);
        }
    }
}

/// Returns true if the other end has not closed a connection, on which nothing is sent.
fn is_open(connection: &Socket) -> bool {
    let read = (&**connection).read(&mut [0]);
    read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
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
    fn short_lived_processes_use_up_no_place() {
        let name = format!("roce-io/chosen/many/{}", std::process::id());
        let mut chosen = ChosenProcess::new(name.clone());
        assert!(chosen.is_this());
        for _ in 0..2 * MAX_OTHERS {
            assert!(!ChosenProcess::new(name.clone()).is_this());
            assert!(chosen.is_this());
        }
    }
}
