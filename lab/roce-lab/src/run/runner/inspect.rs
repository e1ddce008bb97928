//! Inspections at the end of a section.

use std::collections::HashMap;

use super::trials::longest_pauses;
use super::{Runner, attributes_in_words};
use crate::lesson::{Inspect, LessonError};
use crate::run::record::Inspection;
use crate::run::text::counted;

impl Runner {
    pub(super) fn inspect(&self, inspect: &Inspect) -> Result<Inspection, LessonError> {
        Ok(match inspect {
            Inspect::Layers(number) => {
                let packets = &self.world.timeline().packets;
                Inspection::of_layers(packets, *number)
                    .ok_or_else(|| self.unknown("packet", &number.to_string()))?
            }
            Inspect::Text { region, bytes } => {
                let (host, span) = self.region(region)?;
                let held = self.world.hosts[host].memory.bytes(span);
                let held = &held[..held.len().min(*bytes)];
                let text: String = held
                    .iter()
                    .map(|byte| match byte {
                        b' '..=b'~' => char::from(*byte),
                        _ => '.',
                    })
                    .collect();
                let name = &self.world.hosts[host].name;
                Inspection { title: format!("{name}'s memory, {region:?}"), lines: vec![text] }
            }
            Inspect::Number { region } => {
                let (host, span) = self.region(region)?;
                let held = self.world.hosts[host].memory.bytes(span);
                let word = held.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                let name = &self.world.hosts[host].name;
                let title = format!("{name}'s memory, {region:?}, as a number");
                Inspection { title, lines: vec![word.to_string()] }
            }
            Inspect::QueuePair { host } => {
                let (end, _) = self.end(host)?;
                let info = self.world.hosts[end.host].query_qp(end.qpn);
                let info = info.ok_or_else(|| self.unknown("queue pair of", host))?;
                let mut lines = vec![format!("state {}", info.state)];
                lines.extend(attributes_in_words(&info.attributes));
                lines.push(format!(
                    "{} outstanding",
                    counted(info.sends_outstanding as usize, "request")
                ));
                lines.push(format!("{} posted", counted(info.receives_posted as usize, "receive")));
                Inspection { title: format!("{host}'s queue pair {:#x}", end.qpn.get()), lines }
            }
            Inspect::SharedReceives {} => {
                let info = self.srq.and_then(|srq| self.world.hosts[1].query_srq(srq));
                let info = info.ok_or_else(|| self.unknown("queue", "shared-receives"))?;
                let limit = match info.limit {
                    0 => "no limit armed".to_owned(),
                    limit => format!("limit {limit} armed"),
                };
                let lines = vec![
                    format!("{} posted", counted(info.posted as usize, "receive")),
                    limit,
                    counted(info.users as usize, "queue pair"),
                ];
                let name = &self.world.hosts[1].name;
                Inspection { title: format!("{name}'s shared receive queue"), lines }
            }
            Inspect::Counters { host, names } => {
                let place = self.host(host)?;
                let all: HashMap<_, _> = self.world.hosts[place].counters().iter().collect();
                let line = |name: &String| match all.get(name.as_str()) {
                    Some(count) => Ok(format!("{name} {count}")),
                    None => Err(self.unknown("counter", name)),
                };
                let lines = names.iter().map(line).collect::<Result<_, _>>()?;
                Inspection { title: format!("{host}'s counters"), lines }
            }
            Inspect::Figures(names) => self.figures(names)?,
            Inspect::Rates { trial, flow, count } => self.rates(trial, flow, *count)?,
            Inspect::LongestPauses {} => longest_pauses(),
            Inspect::AckTimeouts(exponents) => self.ack_timeouts(exponents)?,
            Inspect::Drawing {} => self.drawing()?,
            Inspect::Chunks {} => {
                let hosts = &self.world.hosts;
                let width = hosts.len().max(4);
                let names = (0..hosts.len()).map(|chunk| format!("  chunk {chunk:<width$}"));
                let mut lines = vec![format!("{:8}{}", "", names.collect::<String>().trim_end())];
                for (rank, host) in hosts.iter().enumerate() {
                    let values = self.chunks_of(rank).into_iter().map(|value| {
                        let digits = format!("{value:0width$}", width = hosts.len());
                        format!("  {digits:<width$}", width = width + 6)
                    });
                    let line = format!("{:8}{}", host.name, values.collect::<String>());
                    lines.push(line.trim_end().to_owned());
                }
                Inspection { title: "chunks of all ranks".to_owned(), lines }
            }
        })
    }
}
