//! Two processes of ours on one interface and address, both with the same peer at once.

use crate::connection::Connection;
use crate::fault::Fault;
use crate::params::{Operation, WaitMode};

use super::{atomics, transfer};

/// Runs an operation many times on each connection, all connections at once.
///
/// # Errors
/// At the first difference on any of them.
pub fn run(connections: [Connection; 2], operation: Operation) -> Result<(), Fault> {
    std::thread::scope(|scope| {
        let running =
            connections.map(|connection| scope.spawn(move || many(connection, operation)));
        running.into_iter().try_for_each(|one| one.join().expect("cases do not panic"))
    })
}

fn many(mut connection: Connection, operation: Operation) -> Result<(), Fault> {
    for round in 0..ROUNDS {
        if operation.is_atomic() {
            atomics::run(&mut connection, operation, 16, WaitMode::Poll)?;
        } else {
            transfer::run(&mut connection, operation, 10_000 + round, 16, WaitMode::Poll)?;
        }
    }
    Ok(())
}

const ROUNDS: usize = 20;
