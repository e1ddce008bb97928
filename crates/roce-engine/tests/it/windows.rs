//! Memory windows of types 1 and 2B, between two endpoints with real tables of memory.

mod bindings;
mod engines;
mod lifetime;
mod model;
mod pair;
mod rights;
