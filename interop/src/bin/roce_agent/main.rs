//! `roce_agent INTERFACE [--loss RATE] [--seed N] [--pcap FILE] [--gso on|off|auto]`
//!
//! Does on `roce-verbs` what a test commands, line by line; the counterpart of
//! `interop/rxe_agent`, with the same commands and replies (`interop/README.md`). Every command is
//! replied with one line, `ok ...` or `error ...`, before the next is read; `wait` puts one
//! `wc ...` line for each completion in front. A failing command does not end the program.
#![forbid(unsafe_code)]

mod commands;
mod completions;
mod objects;
mod parse;
mod regions;
mod result;
mod windows;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use roce_verbs::{Device, DeviceConfig, FaultConfig, FaultRates, GsoMode, environment};

use objects::Objects;
use parse::Words;
use result::Result;

fn main() -> ExitCode {
    let mut out = io::stdout();
    let mut objects = match open() {
        Ok(objects) => objects,
        Err(error) => {
            let _ = writeln!(out, "error {error}"); // the harness may be gone
            return ExitCode::FAILURE;
        }
    };
    let mut reply = "ok".to_owned();
    let mut lines = io::stdin().lock().lines();
    loop {
        if writeln!(out, "{reply}").is_err() {
            return ExitCode::SUCCESS;
        }
        let Some(Ok(line)) = lines.next() else { return ExitCode::SUCCESS };
        reply = match commands::obey(&mut objects, &Words::of(&line), &mut out) {
            Ok(values) => format!("ok {values}"),
            Err(error) => format!("error {error}"),
        };
    }
}

/// Opens the device that the command line names.
fn open() -> Result<Objects> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().ok_or("usage: roce_agent INTERFACE [OPTION VALUE]...")?;
    let backend = environment::backend()?;
    let mut config = DeviceConfig { backend, ..DeviceConfig::default() };
    let (mut loss, mut mark, mut seed) = (0.0, 0.0, 1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--loss" => loss = value.parse()?,
            "--mark" => mark = value.parse()?,
            "--seed" => seed = value.parse()?,
            "--pcap" => config.capture = Some(value.into()),
            "--backend" => config.backend = value.parse()?,
            "--gso" => {
                config.gso = match value.as_str() {
                    "on" => GsoMode::On,
                    "off" => GsoMode::Off,
                    _ => GsoMode::Auto,
                }
            }
            _ => return Err(format!("no such option: {option}").into()),
        }
    }
    if loss + mark > 0.0 {
        let rates = FaultRates { drop: loss, mark, ..FaultRates::default() };
        config.faults =
            Some(FaultConfig { seed, inbound: rates, outbound: rates, ..FaultConfig::default() });
    }
    let device = Device::open(&interface, config)?;
    if let Some(why) = device.backend_refusal() {
        eprintln!("roce_agent: by {}: {why}", device.backend());
    }
    Objects::on(device)
}
