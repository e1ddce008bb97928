//! Claims of ports among the processes of one network namespace.
//!
//! A claim is an abstract unix socket with the name of port space, port and address. The kernel
//! ends it with the process. While a listener takes requests it has a second name, which says so.
//!
//! Claims for one address and for any overlap although their names differ: a claimant binds its
//! own name first and then looks for those, so that of two that race at least one sees the other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rand::Rng;
use roce_io::process::Own;
use roce_io::sockets::{NameLookup, Unnamed, bind_abstract, is_abstract_bound};
use roce_wire::management::PortSpace;

use super::address;
use super::error::Error;
use crate::process::fork;

/// A port that no other identifier of this network namespace has, as long as this lives.
#[derive(Debug)]
pub(crate) struct PortClaim {
    address: SocketAddr,
    space: PortSpace,
    scope: Scope,
    _claim: Own<UnixDatagram>,
    /// The name that shows that requests are taken, too.
    listening: Option<Own<UnixDatagram>>,
}

/// Start of the names of claims.
const CLAIMS: &str = "roce/cm/";
/// Start of the names of abstract sockets by which processes show that they take requests.
pub const LISTENERS: &str = "roce/cm-listening/";

/// Which addresses a claim is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    One(IpAddr),
    AnyV4,
    /// Every IPv6 address, and every IPv4 address unless `only`.
    AnyV6 {
        only: bool,
    },
}

impl Scope {
    fn of(address: IpAddr, is_v6_only: bool) -> Self {
        match address {
            address if !address::is_any(address) => Self::One(address),
            IpAddr::V4(_) => Self::AnyV4,
            IpAddr::V6(_) => Self::AnyV6 { only: is_v6_only },
        }
    }

    fn name(self, start: &str, space: PortSpace, port: u16) -> String {
        let space = space.0;
        match self {
            Self::One(address) => format!("{start}{space:x}/{port}/{address}"),
            Self::AnyV4 => format!("{start}{space:x}/{port}/any4"),
            Self::AnyV6 { only: false } => format!("{start}{space:x}/{port}/any6"),
            Self::AnyV6 { only: true } => format!("{start}{space:x}/{port}/only6"),
        }
    }

    /// Returns the other scopes that have an address in common with this one, where the host has `own`
    /// addresses.
    fn overlapping(self, own: &[IpAddr]) -> Vec<Self> {
        let of_family = |is_v4: bool| own.iter().filter(move |it| it.is_ipv4() == is_v4);
        let one = |address: &IpAddr| Self::One(*address);
        let [any6, only6] = [false, true].map(|only| Self::AnyV6 { only });
        match self {
            Self::One(IpAddr::V4(_)) => vec![Self::AnyV4, any6],
            Self::One(IpAddr::V6(_)) => vec![any6, only6],
            Self::AnyV4 => of_family(true).map(one).chain([any6]).collect(),
            Self::AnyV6 { only: false } => {
                own.iter().map(one).chain([Self::AnyV4, only6]).collect()
            }
            Self::AnyV6 { only: true } => of_family(false).map(one).chain([any6]).collect(),
        }
    }
}

/// Times that a claimant tries again which sees another that may see it too.
const RETRIES: usize = 3;
/// Ports that are chosen where the program names none.
const AUTOMATIC: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// Ports of them that are tried.
const MAX_TRIED: usize = 256;

impl PortClaim {
    /// Claims a port for an address; port 0 stands for any that is free.
    pub(crate) fn new(
        space: PortSpace,
        address: SocketAddr,
        is_v6_only: bool,
    ) -> Result<Self, Error> {
        if address.port() != 0 {
            return Self::claim(space, address, is_v6_only)?.map_err(|found| match found {
                // As the kernel's rdma_cm has it.
                InUse::Same if !address::is_any(address.ip()) => Error::AddressInUse { address },
                InUse::Same | InUse::Overlapping => Error::AddressOverlaps { address },
            });
        }
        for _ in 0..MAX_TRIED {
            let port = automatic_port();
            let address = SocketAddr::new(address.ip(), port);
            if let Ok(claimed) = Self::claim(space, address, is_v6_only)? {
                return Ok(claimed);
            }
        }
        Err(Error::NoPortLeft)
    }

    /// Shows that requests to the port are taken from now on: to programs that wait for it, and to the
    /// processes that refuse requests to no listener.
    ///
    /// # Errors
    /// [`Error::AddressInUse`] if another process has taken the name; the kernel's.
    pub(crate) fn announce(&mut self, socket: Unnamed) -> Result<(), Error> {
        let address = self.address;
        let bound = socket.bind(&self.scope.name(LISTENERS, self.space, address.port()));
        self.listening = Some(bound.map_err(|(_, error)| match error.kind() {
            io::ErrorKind::AddrInUse => Error::AddressInUse { address },
            _ => error.into(),
        })?);
        Ok(())
    }

    /// Shows that no more requests are taken.
    pub(crate) fn withdraw(&mut self) {
        self.listening = None;
    }

    /// Returns address and port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Claims a port, unless it is in use.
    fn claim(
        space: PortSpace,
        address: SocketAddr,
        is_v6_only: bool,
    ) -> Result<Result<Self, InUse>, Error> {
        let scope = Scope::of(address.ip(), is_v6_only);
        let others = scope.overlapping(&address::of_this_host()?);
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(fork::rng().random_range(1..=5)));
            }
            let name = scope.name(CLAIMS, space, address.port());
            let bound = match bind_abstract(&name) {
                Ok(bound) => bound,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    return Ok(Err(InUse::Same));
                }
                Err(error) => return Err(error.into()),
            };
            if !others
                .iter()
                .any(|other| is_abstract_bound(&other.name(CLAIMS, space, address.port())))
            {
                return Ok(Ok(Self { address, space, scope, _claim: bound, listening: None }));
            }
            // The other one may have looked at the same time, and end its own claim.
        }
        Ok(Err(InUse::Overlapping))
    }
}

/// What keeps a port from being claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InUse {
    /// A claim for the same addresses.
    Same,
    /// A claim for other addresses, some of which are the same.
    Overlapping,
}

/// Returns a random port for an identifier that listens nowhere.
pub(crate) fn automatic_port() -> u16 {
    fork::rng().random_range(AUTOMATIC)
}

/// Returns true if an identifier of this network namespace takes requests to a port of an address.
pub(crate) fn is_listening(
    lookup: &mut NameLookup,
    space: PortSpace,
    port: u16,
    address: IpAddr,
) -> bool {
    let scope = Scope::One(address);
    let mut all = scope.overlapping(&[]).into_iter().chain([scope]);
    all.any(|scope| lookup.is_bound(&scope.name(LISTENERS, space, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A space of this test alone.
    fn space(number: u16) -> PortSpace {
        PortSpace(0xf000 | number)
    }

    fn claim(space: PortSpace, address: &str) -> Result<PortClaim, i32> {
        PortClaim::new(space, address.parse().unwrap(), false).map_err(|error| error.errno())
    }

    #[test]
    fn claims_of_one_port_exclude_each_other_where_they_have_an_address_in_common() {
        let space = space(1);
        // With an unspecified address on either side the kernel's rdma_cm has another number.
        let (in_use, overlaps) = (libc::EADDRINUSE, libc::EADDRNOTAVAIL);
        let any4 = claim(space, "0.0.0.0:7").unwrap();
        assert_eq!(claim(space, "0.0.0.0:7").unwrap_err(), overlaps);
        assert_eq!(claim(space, "10.99.0.1:7").unwrap_err(), overlaps);
        assert_eq!(claim(space, "[::]:7").unwrap_err(), overlaps);
        let others = [claim(space, "[fd00::1]:7"), claim(space, "0.0.0.0:8")];
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        assert!(claim(PortSpace(space.0 + 1), "0.0.0.0:7").is_ok());
        drop(any4);
        let one = claim(space, "10.99.0.1:7").unwrap();
        assert_eq!(claim(space, "10.99.0.1:7").unwrap_err(), in_use);
        let other = claim(space, "10.99.0.2:7").unwrap();
        drop((one, other));
        assert!(claim(space, "[::]:7").is_ok());
    }

    #[test]
    fn any_address_of_one_family_leaves_the_other_alone_if_it_is_to() {
        let space = space(3);
        let only6 = PortClaim::new(space, "[::]:7".parse().unwrap(), true).unwrap();
        assert!(claim(space, "0.0.0.0:7").is_ok());
        assert_eq!(claim(space, "[fd00::1]:7").unwrap_err(), libc::EADDRNOTAVAIL);
        assert_eq!(only6.address().port(), 7);
    }

    #[test]
    fn an_automatic_port_is_free() {
        let space = space(5);
        let claims: Vec<_> = (0..50).map(|_| claim(space, "0.0.0.0:0").unwrap()).collect();
        let ports: std::collections::BTreeSet<_> =
            claims.iter().map(|it| it.address().port()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| AUTOMATIC.contains(port)));
    }

    #[test]
    fn of_claimants_that_race_at_most_one_has_the_port() {
        let space = space(7);
        for round in 1..40_u16 {
            let claims: Vec<_> = std::thread::scope(|threads| {
                let claimants = ["0.0.0.0", "127.9.9.9", "0.0.0.0"].map(|address| {
                    threads.spawn(move || claim(space, &format!("{address}:{round}")).ok())
                });
                claimants.into_iter().filter_map(|it| it.join().unwrap()).collect()
            });
            assert!(claims.len() <= 1, "round {round}: {claims:?}");
        }
    }
}
