//! Identifiers that take requests.

use std::net::{IpAddr, SocketAddr};

use roce_cm::{ListenParameters, ListenerHandle};
use roce_io::sockets::Unnamed;

use super::id::{Id, Phase, State, end_listeners};
use crate::cm_router::{Error, PortClaim, address};
use crate::device::Device;

impl Id {
    /// Waits for requests, of which at most `backlog` wait to be taken; 0 stands for 1024. An
    /// identifier that is bound to any address listens on every device that has an address now; one
    /// that is not bound is bound to any address and port first.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::NoDevice`], [`Error::WrongState`]; those of
    /// [`Device::open`](crate::Device::open).
    pub fn listen(&self, backlog: u32) -> Result<(), Error> {
        if self.0.checked_state()?.phase == Phase::Idle {
            self.bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        let mut state = self.0.checked_state()?;
        let local = state.local.filter(|_| state.phase == Phase::Bound);
        let mut local = local.ok_or(Error::WrongState { call: "listen" })?;
        if state.claim.is_none() {
            let claim = PortClaim::new(self.space(), local, state.is_v6_only)?;
            local.set_port(claim.address().port());
            (state.local, state.claim) = (Some(local), Some(claim));
        }
        let ready = std::mem::take(&mut state.ready);
        let devices = match &state.device {
            Some(device) => vec![device.clone()],
            None if ready.is_empty() => self.0.open_all(local.ip())?,
            None => ready,
        };
        let mut listeners = Vec::new();
        let state = &mut *state;
        let made = self.listen_on(devices, local, backlog, state, &mut listeners);
        if let Err(error) = made {
            if let Some(claim) = &mut state.claim {
                claim.withdraw();
            }
            end_listeners(&listeners);
            return Err(error);
        }
        (state.listeners, state.phase) = (listeners, Phase::Listening);
        Ok(())
    }

    /// Adds listeners to the agents of devices.
    ///
    /// The name that keeps other processes from refusing requests is bound under the lock of the first agent: that
    /// one finds a listener for each request that is left to it. A request to another device is lost until its peer
    /// repeats it, if it comes before that device's turn.
    fn listen_on(
        &self,
        devices: Vec<Device>,
        local: SocketAddr,
        backlog: u32,
        state: &mut State,
        listeners: &mut Vec<(Device, ListenerHandle)>,
    ) -> Result<(), Error> {
        // Made before: it waits for forks.
        let mut socket = Some(Unnamed::new()?);
        let mut announce = |claim: &mut Option<PortClaim>| match (claim, socket.take()) {
            (Some(claim), Some(socket)) => claim.announce(socket),
            _ => Ok(()),
        };
        let (space, port) = (self.space(), local.port());
        for device in devices {
            let addresses = listening_addresses(&device, local.ip(), state.is_v6_only)?;
            device.with_agent(|agent, router, _| {
                for address in addresses {
                    announce(&mut state.claim)?;
                    let parameters = ListenParameters { space, port, address, backlog };
                    let handle = agent.listen(&parameters)?;
                    router.add_listener(handle, &self.0.target);
                    listeners.push((device.clone(), handle));
                }
                Ok(())
            })?;
        }
        // Where no device has an address yet, too.
        announce(&mut state.claim)
    }
}

/// Returns the addresses that the agent of a device listens on for the address of this identifier.
fn listening_addresses(
    device: &Device,
    address: IpAddr,
    is_v6_only: bool,
) -> Result<Vec<IpAddr>, Error> {
    Ok(match address {
        address if !address::is_any(address) => vec![address],
        IpAddr::V4(_) => vec![IpAddr::from([0, 0, 0, 0])],
        IpAddr::V6(_) if !is_v6_only => vec![IpAddr::from([0_u16; 8])],
        IpAddr::V6(_) => {
            let usable = device.gid_table()?.into_iter().filter(|row| row.usable);
            usable.map(|row| row.gid.ip()).filter(IpAddr::is_ipv6).collect()
        }
    })
}
