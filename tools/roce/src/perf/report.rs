//! What perftest prints: the block of settings, the two ends, a line for each size.

use serde_json::{Map, Value, json};

use super::control::PeerInfo;
use super::fairness::Fairness;
use super::options::Options;
use super::params::{AtomicKind, Params, Test, Verb};
use super::resources::Resources;
use super::result::{Row, SizeResult};
use crate::error::Result;
use crate::output::print;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) gbits: bool,
    pub(crate) json: bool,
}

/// The settings in the header.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    title: String,
    device: String,
    gid_index: u8,
    is_client: bool,
}

/// A report.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    style: Style,
    params: &'a Params,
    settings: Header,
    results: Vec<SizeResult>,
}

impl From<&Options> for Style {
    fn from(options: &Options) -> Self {
        Self { gbits: options.gbits, json: options.json }
    }
}

impl<'a> Report<'a> {
    /// Prints the header.
    pub(crate) fn new(
        style: Style,
        params: &'a Params,
        end: &Resources,
        is_client: bool,
    ) -> Result<Self> {
        let settings = Header {
            title: title(params),
            device: end.device.interface().to_owned(),
            gid_index: end.gid_index,
            is_client,
        };
        let report = Self { style, params, settings, results: Vec::new() };
        if !style.json {
            print(&report.block())?;
        }
        Ok(report)
    }

    /// Prints the addresses of both ends and the names of the columns.
    pub(crate) fn peer_info(&self, mine: &PeerInfo, theirs: &PeerInfo) -> Result {
        if self.style.json {
            return Ok(());
        }
        for (side, end) in [("local", mine), ("remote", theirs)] {
            print(&self.peer_lines(side, end))?;
        }
        let lost = if self.params.connection.is_unreliable() { LOSS_COLUMNS } else { "" };
        print(&format!("{LINE}\n{}{lost}\n", self.columns()))
    }

    /// Prints a result.
    pub(crate) fn result(&mut self, result: SizeResult) -> Result {
        if !self.style.json {
            print(&format!("{}{}\n", self.line(&result.row), loss_columns(&result)))?;
        }
        self.results.push(result);
        Ok(())
    }

    /// Ends the report.
    pub(crate) fn finish(self) -> Result {
        if self.style.json {
            print(&format!("{:#}\n", self.to_json()))
        } else {
            print(&format!("{LINE}\n{}", self.fairness()))
        }
    }

    /// Returns the line with the worst shares of all sizes.
    fn fairness(&self) -> String {
        let worst =
            self.results.iter().filter_map(|it| it.row.fairness()).reduce(|a, b| Fairness {
                min_share: a.min_share.min(b.min_share),
                max_share: a.max_share.max(b.max_share),
            });
        worst.map_or_else(String::new, |fairness| {
            let Fairness { min_share, max_share } = fairness;
            format!(
                " Of the mean of all queue pairs, the slowest carried {min_share:.3}, the fastest \
                 {max_share:.3}\n"
            )
        })
    }

    fn block(&self) -> String {
        let (params, settings) = (self.params, &self.settings);
        let mut text = format!("{LINE}\n                    {}\n", settings.title);
        let mut say = |line: String| text += &(line + "\n");
        say(format!(" Dual-port       : OFF\t\tDevice         : {}", settings.device));
        say(format!(" Number of qps   : {}\t\tTransport type : IB", params.qps));
        let service = params.connection.name();
        say(format!(" Connection type : {service}\t\tUsing SRQ      : OFF"));
        if settings.is_client {
            say(format!(" TX depth        : {}", params.tx_depth));
        }
        if params.verb == Verb::Send && (!settings.is_client || params.test == Test::Lat) {
            say(format!(" RX depth        : {}", params.rx_depth));
        }
        if params.test == Test::Bw {
            say(format!(" CQ Moderation   : {}", params.moderation(params.longest())));
        }
        say(format!(" Mtu             : {}[B]", params.path_mtu.unwrap_or(0)));
        say(" Link type       : Ethernet".to_owned());
        say(format!(" GID index       : {}", settings.gid_index));
        if matches!(params.verb, Verb::Read | Verb::Atomic) {
            say(format!(" Outstand reads  : {}", params.outs));
        } else {
            if let Some(rate) = params.rate {
                say(format!(" Static rate     : {rate} Gb/sec"));
            }
            say(format!(" Max inline data : {}[B]", params.inline));
        }
        say(" rdma_cm QPs\t : OFF".to_owned());
        say(format!(" Data ex. method : Ethernet\n{LINE}"));
        text
    }

    fn peer_lines(&self, side: &str, end: &PeerInfo) -> String {
        let mut text = String::new();
        let shown = if end.qps.len() > MAX_QPS_SHOWN { QPS_SHOWN_OF_MANY } else { end.qps.len() };
        for qp in &end.qps[..shown] {
            text += &format!(
                " {side} address: LID 0000 QPN {:#06x} PSN {:#06x}",
                qp.number, qp.first_psn
            );
            if self.params.verb == Verb::Read {
                text += &format!(" OUT {:#04x}", self.params.outs);
            }
            if matches!(self.params.verb, Verb::Read | Verb::Write) {
                text += &format!(" RKey {:#08x} VAddr {:#018x}", end.key, end.address);
            }
            text += &format!("\n GID: {}\n", end.gid.map(|byte| format!("{byte:02}")).join(":"));
        }
        if shown < end.qps.len() {
            text += &format!(" {side} addresses of {} more queue pairs\n", end.qps.len() - shown);
        }
        text
    }

    fn columns(&self) -> &'static str {
        match (self.params.test, self.params.duration, self.style.gbits) {
            (Test::Bw, _, false) => {
                " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]"
            }
            (Test::Bw, _, true) => {
                " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
            }
            (Test::Lat, None, _) => {
                " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
                 t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
            }
            (Test::Lat, Some(_), _) => {
                " #bytes        #iterations       t_avg[usec]    tps average"
            }
        }
    }

    fn line(&self, row: &Row) -> String {
        match row {
            Row::Bandwidth { size, messages, peak, average, .. } => {
                let unit = self.bytes_a_second(*size);
                let (peak, bandwidth) = (peak.unwrap_or(0.0) * unit, average * unit);
                let rate = average / 1e6;
                if self.style.gbits && bandwidth < 0.1 {
                    format!(
                        " {size:<7}    {messages}           {peak:<7.6}            \
                         {bandwidth:<7.6}            {rate:<7.6}"
                    )
                } else {
                    format!(
                        " {size:<7}    {messages:<10}       {peak:<7.2}            \
                         {bandwidth:<7.2}\t\t     {rate:<7.6}"
                    )
                }
            }
            Row::Latency { size, iterations, latency: time } => format!(
                " {size:<7} {iterations}          {:<7.2}        {:<7.2}      {:<7.2}  \t       \
                 {:<7.2}     \t{:<7.2}\t\t{:<7.2} \t\t{:<7.2}",
                time.min,
                time.max,
                time.typical,
                time.average,
                time.deviation,
                time.percentile_99,
                time.percentile_99_9
            ),
            Row::LatencyOverTime { size, iterations, average, rate } => {
                format!(
                    " {size:<7}       {iterations}            {average:<7.2}        {rate:<7.2}"
                )
            }
        }
    }

    /// Returns the bandwidth of one message per second in the unit of the report.
    fn bytes_a_second(&self, size: u32) -> f64 {
        let size = f64::from(size);
        if self.style.gbits { size * 8.0 / 1e9 } else { size / f64::from(1 << 20) }
    }

    fn to_json(&self) -> Value {
        let params = self.params;
        let mut info = Map::new();
        let mut say = |name: &str, value: Value| drop(info.insert(name.to_owned(), value));
        say("test", json!(self.settings.title.replace(' ', "_")));
        say("Device", json!(self.settings.device));
        say("Number_of_qps", json!(params.qps));
        say("Connection_type", json!(params.connection.name()));
        say("TX_depth", json!(params.tx_depth));
        say("Mtu", json!(params.path_mtu));
        say("Link_type", json!("Ethernet"));
        say("GID_index", json!(self.settings.gid_index));
        if let Some(rate) = params.rate {
            say("Static_rate", json!(rate));
        }
        if params.test == Test::Bw {
            say("CQ_Moderation", json!(params.moderation(params.longest())));
            if let Some(bytes) = params.working_set {
                say("Working_set", json!(bytes));
            }
            say("BW_unit", json!(if self.style.gbits { "Gb/sec" } else { "MiB/sec" }));
        }
        let rows: Vec<Value> = self.results.iter().map(|it| self.result_to_json(it)).collect();
        json!({ "test_info": info, "results": rows })
    }

    fn result_to_json(&self, result: &SizeResult) -> Value {
        let mut row = self.row_to_json(&result.row);
        if let Some(loss) = result.loss {
            row["n_lost"] = json!(loss.messages());
            row["lost_percent"] = json!(loss.percent());
        }
        row
    }

    fn row_to_json(&self, row: &Row) -> Value {
        match row {
            Row::Bandwidth { size, messages, peak, average, fairness } => {
                let unit = self.bytes_a_second(*size);
                let mut row = json!({
                    "MsgSize": size,
                    "n_iterations": messages,
                    "BW_peak": peak.map(|peak| peak * unit),
                    "BW_average": average * unit,
                    "MsgRate": average / 1e6,
                });
                if let Some(fairness) = fairness {
                    row["fairness"] = json!(fairness);
                }
                row
            }
            Row::Latency { size, iterations, latency: time } => json!({
                "MsgSize": size,
                "n_iterations": iterations,
                "t_min": time.min,
                "t_max": time.max,
                "t_typical": time.typical,
                "t_avg": time.average,
                "t_stdev": time.deviation,
                "percentile_99": time.percentile_99,
                "percentile_99.9": time.percentile_99_9,
            }),
            Row::LatencyOverTime { size, iterations, average, rate } => json!({
                "MsgSize": size,
                "n_iterations": iterations,
                "t_avg": average,
                "tps_average": rate,
            }),
        }
    }
}

/// Returns the columns of lost messages.
fn loss_columns(result: &SizeResult) -> String {
    result.loss.map_or_else(String::new, |loss| {
        format!("\t   {:<10}    {:<7.3}", loss.messages(), loss.percent())
    })
}

fn title(params: &Params) -> String {
    let verb = match (params.verb, params.atomic) {
        (Verb::Send, _) => "Send",
        (Verb::Write, _) => "RDMA_Write",
        (Verb::Read, _) => "RDMA_Read",
        (Verb::Atomic, AtomicKind::FetchAndAdd) => "Atomic FETCH_AND_ADD",
        (Verb::Atomic, AtomicKind::CompareAndSwap) => "Atomic CMP_AND_SWAP",
    };
    let test = if params.test == Test::Bw { "BW" } else { "Latency" };
    format!("{verb} {test} Test")
}

impl Row {
    fn fairness(&self) -> Option<Fairness> {
        match self {
            Self::Bandwidth { fairness, .. } => *fairness,
            Self::Latency { .. } | Self::LatencyOverTime { .. } => None,
        }
    }
}

/// The most queue pairs whose addresses are all printed.
const MAX_QPS_SHOWN: usize = 16;
const QPS_SHOWN_OF_MANY: usize = 4;

const LOSS_COLUMNS: &str = "   Lost[msgs]    Lost[%]";
const LINE: &str =
    "---------------------------------------------------------------------------------------";

#[cfg(test)]
mod tests {
    use super::super::control::QpInfo;
    use super::super::loss::Loss;
    use super::super::params::{self, Connection};
    use super::super::statistics::Latency;
    use super::*;

    fn report(params: &Params, gbits: bool) -> Report<'_> {
        let settings = Header {
            title: title(params),
            device: "eth0".to_owned(),
            gid_index: 1,
            is_client: true,
        };
        Report { style: Style { gbits, json: false }, params, settings, results: Vec::new() }
    }

    fn latency() -> Row {
        let latency = Latency {
            min: 5.1,
            max: 40.25,
            typical: 6.0,
            average: 6.5,
            deviation: 1.25,
            percentile_99: 9.0,
            percentile_99_9: 33.333,
        };
        Row::Latency { size: 2, iterations: 1000, latency }
    }

    fn bandwidth() -> Row {
        Row::Bandwidth {
            size: 65536,
            messages: 5000,
            peak: Some(60000.0),
            average: 50000.0,
            fairness: None,
        }
    }

    fn result(row: Row) -> SizeResult {
        SizeResult { row, loss: None, places_used: 1 }
    }

    #[test]
    fn bandwidth_is_reported_as_perftest_reports_it() {
        let params = params::example();
        let mut report = report(&params, false);
        let end = PeerInfo {
            qps: vec![QpInfo { number: 0x11, first_psn: 0x8a4e6f }],
            gid: std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets(),
            address: 0x7f3a_9e3f_0000,
            key: 0x2b8,
        };
        let text = [
            report.block(),
            report.peer_lines("local", &end),
            format!("{LINE}\n{}\n{}\n", report.columns(), report.line(&bandwidth())),
        ];
        insta::assert_snapshot!("write_bw", text.concat());
        report.results.push(result(bandwidth()));
        insta::assert_snapshot!("write_bw_json", format!("{:#}", report.to_json()));
    }

    #[test]
    fn shares_of_many_queue_pairs_are_told_below_the_table_and_in_json() {
        let params = Params { qps: 1000, working_set: Some(1 << 26), ..params::example() };
        let mut report = report(&params, false);
        for (min_share, max_share) in [(0.95, 1.0625), (0.9375, 1.05)] {
            report.results.push(result(match bandwidth() {
                Row::Bandwidth { size, messages, peak, average, .. } => {
                    let fairness = Some(Fairness { min_share, max_share });
                    Row::Bandwidth { size, messages, peak, average, fairness }
                }
                other => other,
            }));
        }
        let qp = QpInfo { number: 0x11, first_psn: 0x8a4e6f };
        let (gid, address, key) = ([0; 16], 0, 0);
        let end = PeerInfo { qps: vec![qp; 1000], gid, address, key };
        let json = format!("{:#}", report.to_json());
        let text = [report.peer_lines("local", &end), report.fairness(), json];
        insta::assert_snapshot!("many", text.concat());
    }

    #[test]
    fn gigabits_are_decimal_and_slow_ones_have_more_digits() {
        let params = params::example();
        let report = report(&params, true);
        let slow = Row::Bandwidth {
            size: 2,
            messages: 1000,
            peak: None,
            average: 10_000.0,
            fairness: None,
        };
        let lines = [report.columns().to_owned(), report.line(&bandwidth()), report.line(&slow)];
        insta::assert_snapshot!("gbits", lines.join("\n"));
    }

    #[test]
    fn latency_is_reported_as_perftest_reports_it() {
        let params =
            Params { verb: Verb::Send, test: Test::Lat, sizes: vec![2], ..params::example() };
        let mut report = report(&params, false);
        let text = [report.block(), report.columns().to_owned(), report.line(&latency())];
        insta::assert_snapshot!("send_lat", text.join("\n"));
        report.results.push(result(latency()));
        insta::assert_snapshot!("send_lat_json", format!("{:#}", report.to_json()));
    }

    #[test]
    fn latency_over_time_has_an_average_and_a_rate() {
        let params = Params { test: Test::Lat, duration: Some(3.0), ..params::example() };
        let report = report(&params, false);
        let row = Row::LatencyOverTime { size: 2, iterations: 100, average: 5.0, rate: 33.3 };
        let lines = [report.columns().to_owned(), report.line(&row)];
        insta::assert_snapshot!("lat_duration", lines.join("\n"));
    }

    #[test]
    fn lost_messages_are_told_in_the_row_and_in_json() {
        let connection = Connection::Ud;
        let params = Params { verb: Verb::Send, connection, rate: Some(2.5), ..params::example() };
        let mut report = report(&params, false);
        let loss = Some(Loss { sent: 5000, received: 4990 });
        for row in [bandwidth(), latency()] {
            report.results.push(SizeResult { loss, ..result(row) });
        }
        let lines = report.results.iter().map(|it| report.line(&it.row) + &loss_columns(it));
        let columns = report.columns().to_owned() + LOSS_COLUMNS;
        let text: Vec<String> = [report.block(), columns].into_iter().chain(lines).collect();
        insta::assert_snapshot!("lost", text.join("\n"));
        insta::assert_snapshot!("lost_json", format!("{:#}", report.to_json()));
    }
}
