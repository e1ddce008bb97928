//! Events of our identifiers, one after the other.

use std::net::SocketAddr;
use std::time::Duration;

use roce_verbs::cm::{Event, EventChannel, EventKind, Id, PortSpace};

use crate::fault::{Fault, expect};
use crate::world::World;

/// Longer than a message that the kernel repeats takes.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn event(channel: &EventChannel) -> Result<Event, Fault> {
    let event = channel.next(Some(LIMIT)).map_err(Fault::ours("wait for an event"))?;
    event.ok_or(Fault::Silent { end: "rxe", limit: LIMIT })
}

/// Takes an event of this kind.
pub(super) fn await_kind(channel: &EventChannel, kind: &EventKind) -> Result<(), Fault> {
    let event = event(channel)?;
    let is_expected = std::mem::discriminant(&event.kind) == std::mem::discriminant(kind);
    expect(is_expected, || format!("{:?} in place of {kind:?}", event.kind))
}

pub(super) fn await_established(channel: &EventChannel) -> Result<(), Fault> {
    await_kind(channel, &EventKind::Established(<_>::default()))
}

/// Ends a connection, as the end that begins or as the one that follows.
pub(super) fn end(channel: &EventChannel, id: &Id, begins: bool) -> Result<(), Fault> {
    if !begins {
        await_kind(channel, &EventKind::Disconnected)?;
    }
    id.disconnect().map_err(Fault::ours("disconnect"))?;
    if begins {
        await_kind(channel, &EventKind::Disconnected)?;
    }
    await_kind(channel, &EventKind::TimewaitExit)
}

/// Returns an identifier whose address and route are resolved.
pub(super) fn resolved(
    world: &World,
    channel: &EventChannel,
    address: SocketAddr,
    space: PortSpace,
) -> Result<Id, Fault> {
    let id = channel.create_id(space, 0).map_err(Fault::ours("make an identifier"))?;
    world
        .host
        .run(|| id.resolve_addr(None, address, LIMIT))
        .map_err(Fault::ours("resolve the address"))?;
    await_kind(channel, &EventKind::AddressResolved)?;
    id.resolve_route().map_err(Fault::ours("resolve the route"))?;
    await_kind(channel, &EventKind::RouteResolved)?;
    Ok(id)
}
