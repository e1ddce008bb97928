//! Private networks for demonstrations and tests: namespaces, veth pairs, bridges.
