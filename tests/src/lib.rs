//! Tests that need namespaces, guests or several processes.
