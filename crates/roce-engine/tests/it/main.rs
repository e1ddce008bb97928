//! Engines in virtual time, and the page of their timing.

mod connection_management;
mod timing_page;
mod virtual_time;
mod windows;
