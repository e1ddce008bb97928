//! `roce perf`: bandwidth and latency as perftest measures and prints them.

mod bandwidth;
mod compare;
mod control;
mod fairness;
mod latency;
mod loss;
mod options;
mod params;
mod perftest_options;
mod report;
mod resources;
mod result;
mod sender;
mod statistics;
mod work_request;
mod working_set;

use roce_verbs::{Device, PathMtu};

pub(crate) use options::Options;

use crate::error::{CliError, Result};
use crate::output::print;
use crate::{local, pingpong, traffic};
use control::{ControlChannel, PeerInfo};
use params::{Connection, Params, Test};
use resources::Resources;
use result::SizeResult;

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    options.perftest.check(options.verb, options.test)?;
    if options.traffic.role.is_none() {
        options.perftest.warnings().iter().for_each(|warning| eprintln!("roce: {warning}"));
    }
    if options.traffic.local && options.traffic.role.is_none() {
        if options.compare {
            return compare::run(options);
        }
        return local::run(&options.traffic);
    }
    local::begin(options.traffic.role)?;
    let host = options
        .host
        .clone()
        .or_else(|| local::server_of(options.traffic.role, options.device.as_deref()));
    options.traffic.on_device(options.device.as_deref(), |device| match host {
        Some(host) => run_client(options, device, &host),
        None => run_server(options, device),
    })
}

fn run_client(options: &Options, device: &Device, host: &str) -> Result {
    let mtu = traffic::path_mtu(device, options.mtu)?;
    let mut params = options.params(mtu)?;
    traffic::check_gid(device, options.gid_index)?;
    let mut control = ControlChannel::connect(host, options.port, &params, mtu)?;
    params.path_mtu = Some(control.agreed_mtu().bytes());
    check_datagrams(&params, control.agreed_mtu())?;
    let mut end = Resources::new(device, &params, options.local_options())?;
    control.fail_after(params.retries())?;
    let mut report = report::Report::new(options.into(), &params, &end, true)?;
    let mut theirs = control.exchange_info(&end.peer_info(options.gid_index)?)?;
    report.peer_info(&end.peer_info(options.gid_index)?, &theirs)?;
    end.connect(&theirs, &params, options.gid_index)?;
    control.synchronize()?;
    for (number, size) in params.sizes.clone().into_iter().enumerate() {
        if number > 0 && params.connection.is_unreliable() {
            theirs = reconnect(&mut end, &params, options.gid_index, &mut control)?;
        }
        if params.test == Test::Lat {
            end.prepare(&params, size)?;
        }
        end.prepare_data(&params, size, true)?;
        control.synchronize()?;
        let result = match params.test {
            Test::Bw => bandwidth::initiate(&end, &theirs, &params, size, &mut control)?,
            Test::Lat => latency::initiate(&end, &theirs, &params, size, &mut control)?,
        };
        control.send(&result)?;
        end.verify_data(&params, size, true, &result)?;
        report.result(result)?;
    }
    report.finish()?;
    control.synchronize()
}

fn run_server(options: &Options, device: &Device) -> Result {
    // Before the client starts: in a private network, one end alone reports the error.
    let mtu = traffic::path_mtu(device, options.mtu)?;
    traffic::check_gid(device, options.gid_index)?;
    let listener = pingpong::listen(options.port)?;
    if !options.json && options.traffic.role.is_none() {
        print("\n************************************\n")?;
        print("* Waiting for client to connect... *\n")?;
        print("************************************\n")?;
    }
    local::announce_ready(options.traffic.role);
    let (mut control, mut params) =
        ControlChannel::accept(&listener, options.verb, options.test, mtu)?;
    params.path_mtu = Some(control.agreed_mtu().bytes());
    let mut end = Resources::new(device, &params, options.local_options())?;
    control.fail_after(params.retries())?;
    let mut report = report::Report::new(options.into(), &params, &end, false)?;
    let mut theirs = control.exchange_info(&end.peer_info(options.gid_index)?)?;
    report.peer_info(&end.peer_info(options.gid_index)?, &theirs)?;
    end.connect(&theirs, &params, options.gid_index)?;
    control.synchronize()?;
    for (number, size) in params.sizes.clone().into_iter().enumerate() {
        if number > 0 && params.connection.is_unreliable() {
            theirs = reconnect(&mut end, &params, options.gid_index, &mut control)?;
        }
        end.prepare(&params, size)?;
        end.prepare_data(&params, size, false)?;
        let uc_messages = end.uc_messages()?;
        control.synchronize()?;
        match params.test {
            Test::Bw => bandwidth::serve(&end, &params, size, uc_messages, &mut control)?,
            Test::Lat => latency::serve(&end, &theirs, &params, size, &mut control)?,
        }
        let result: SizeResult = control.receive()?;
        end.verify_data(&params, size, false, &result)?;
        report.result(result)?;
    }
    report.finish()?;
    control.synchronize()
}

/// Connects the queue pairs anew: messages may have been lost, and their receives are still posted.
fn reconnect(
    end: &mut Resources,
    params: &Params,
    gid_index: Option<u8>,
    control: &mut ControlChannel,
) -> Result<PeerInfo> {
    end.reset()?;
    let theirs = control.exchange_info(&end.peer_info(gid_index)?)?;
    end.connect(&theirs, params, gid_index)?;
    control.synchronize()?;
    Ok(theirs)
}

/// Checks that each message fits into a datagram, if the test sends datagrams.
fn check_datagrams(params: &Params, mtu: PathMtu) -> Result {
    let (size, mtu) = (params.longest(), mtu.bytes());
    if params.connection == Connection::Ud && size as usize > mtu {
        return Err(CliError::new(format!(
            "a datagram of {size} bytes is longer than the path MTU of {mtu}: lower -s or raise the \
             MTU of both interfaces"
        )));
    }
    Ok(())
}
