//! Connections a second: by cmtime, which connects by rdma_cm, and by TCP.

use super::raw::ends;
use super::{last_object, pick};
use crate::report::{Figure, Figures};
use crate::suite::candidate::{CLIENT_CPU, SERVER, SERVER_CPU};
use crate::suite::{Candidate, Readiness};

/// So many connections at a time, by cmtime.
pub(crate) fn rdma_cm(name: &'static str, count: u32) -> Candidate {
    Candidate::new(name, "rdma_cm, cmtime", &["roce", "cmtime"], move |context| {
        let end = |cpu: usize| {
            let launch = context.on_our_device("cmtime");
            launch.args(["-c", &count.to_string()]).on_cpu(cpu)
        };
        let client = end(CLIENT_CPU).args(["-s", &context.network.address(SERVER).to_string()]);
        figures(&context.client_of(&end(SERVER_CPU), Readiness::RdmaCm, &client)?, count)
    })
}

/// So many connections at a time, by our own small program.
pub(crate) fn tcp(name: &'static str, count: u32) -> Candidate {
    let program = "sockets_connections";
    Candidate::new(name, "TCP, connect and accept", &[program], move |context| {
        let printed = ends(context, program, &["--count", &count.to_string()], |end| end)?;
        pick(&last_object(&printed)?, &[("per_second", Figure::Connections)])
    })
}

/// Reads the table of cmtime: the total milliseconds of each step. Those up to the connection count.
fn figures(text: &str, count: u32) -> Result<Figures, String> {
    let total = |step: &str| {
        let row = text.lines().find_map(|line| line.strip_prefix(step));
        let columns = row.and_then(|row| row.split_once(':'));
        let first = columns.and_then(|(_, columns)| columns.split_whitespace().next());
        let total = first.and_then(|word| word.parse::<f64>().ok());
        total.ok_or_else(|| format!("cmtime printed no time of {step:?}"))
    };
    let mut millis = 0.0;
    for step in STEPS {
        millis += total(step)?;
    }
    Ok([(Figure::Connections, f64::from(count) * 1000.0 / millis)].into())
}

/// The steps of cmtime from nothing to a connection.
const STEPS: [&str; 5] = ["create id", "resolve addr", "resolve route", "create qp", "connect "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_up_to_the_connection_count() {
        let text = "connecting\ndisconnecting\n\
                    step              total ms     max ms     min us  us / conn\n\
                    create id    :        5.00       0.06       1.00       4.99\n\
                    resolve addr :       50.00     342.13    5505.00     574.06\n\
                    resolve route:       25.00     301.72     290.00     303.55\n\
                    create qp    :       20.00       0.33      13.00      17.21\n\
                    connect      :      100.00    1194.45   17310.00    1227.27\n\
                    disconnect   :      534.48     413.98   30362.00     534.48\n";
        assert_eq!(figures(text, 1000).unwrap()[&Figure::Connections], 5000.0);
        let without = text.replace("create qp", "destroy");
        assert!(figures(&without, 1000).unwrap_err().contains("create qp"));
    }
}
