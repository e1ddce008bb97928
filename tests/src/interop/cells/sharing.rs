//! Two processes of ours on one interface and address, both with the same peer at once.

use crate::interop::connection::Connection;
use crate::interop::fault::Fault;
use crate::interop::terms::{Manner, Operation};

use super::{atomics, transfer};

/// Runs an operation many times on each connection, all connections at once.
///
/// # Errors
/// At the first difference on any of them.
pub fn run(connections: [Connection; 2], operation: Operation) -> Result<(), Fault> {
    std::thread::scope(|scope| {
        let running =
            connections.map(|connection| scope.spawn(move || many(connection, operation)));
        running.into_iter().try_for_each(|one| one.join().expect("cells do not panic"))
    })
}

fn many(mut connection: Connection, operation: Operation) -> Result<(), Fault> {
    for round in 0..ROUNDS {
        if operation.is_atomic() {
            atomics::run(&mut connection, operation, 16, Manner::Poll)?;
        } else {
            transfer::run(&mut connection, operation, 10_000 + round, 16, Manner::Poll)?;
        }
    }
    Ok(())
}

const ROUNDS: usize = 20;
