//! The command `roce`, by subcommand.

mod book;
mod commands;
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
