//! The command `roce`, by subcommand.

mod background;
mod book;
mod connection_management;
mod dissect;
mod dissect_live;
mod launchers;
mod lessons;
mod link;
mod local;
mod options;
mod run;
mod send;
mod switch;
