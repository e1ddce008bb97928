//! The rails of private networks: names of interfaces, and addresses.

/// Returns the name of a rail's interface, the same at every rank.
pub(crate) fn interface(rail: u32) -> String {
    format!("eth{rail}")
}

/// Returns the rail of an interface of that name.
pub(crate) fn rail_of(interface: &str) -> Option<u32> {
    interface.strip_prefix("eth")?.parse().ok()
}

/// Most rails of a private network.
pub(crate) const MAX_RAILS: i64 = 8;

/// Returns the address of a rank, counted from 0, on a rail.
pub(crate) fn address(rail: u32, rank: u32) -> String {
    format!("10.0.{rail}.{}", rank.saturating_add(1))
}
