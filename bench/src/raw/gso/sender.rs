//! The sending end: trains written into staging buffers, handed over some at a time.

use std::time::{Duration, Instant};

use super::Settings;
use crate::control_channel::ControlChannel;
use crate::program::{Failure, WARM_UP};
use crate::raw::crc_tables::CrcTables;
use crate::raw::frame::{
    self, Addresses, BTH_LEN, Covered, ICRC_LEN, OUTER_LEN, TRAIN_BUFFER_LEN, TRAIN_START,
};
use crate::raw::port::Port;
use crate::raw::sys::{Memory, VIRTIO_LEN, prefetch};

/// Sends for as long as the receiver measures and a little longer; returns how many packets.
pub(super) fn send(
    port: &Port,
    control: &mut ControlChannel,
    settings: &Settings,
    memory: &[u8],
) -> Result<u64, Failure> {
    let addresses = port.addresses(control)?;
    let mut staging = Staging::new(settings, addresses);
    let long = Duration::from_secs_f64(WARM_UP + settings.seconds + MARGIN);
    let (started, mut looked) = (Instant::now(), Instant::now());
    let mut sent = 0;
    while started.elapsed() < long {
        staging.fill(memory, settings);
        port.send_all(staging.frames())?;
        sent += (settings.batch * settings.train) as u64;
        if looked.elapsed() > CHECK_INTERVAL {
            looked = Instant::now();
            if control.is_readable() {
                // It has a reason to tell, or is gone.
                return Err(match super::receive_result::<serde_json::Value>(control) {
                    Ok(_) => Failure::told("the receiver has ended too early"),
                    Err(failure) => failure,
                });
            }
        }
    }
    Ok(sent)
}

/// Buffers of one train each, the first byte of a payload on a cache line of its own.
struct Staging {
    memory: Memory,
    len: usize,
    addresses: Addresses,
    psn: u32,
    identification: u16,
    tables: Option<CrcTables>,
}

impl Staging {
    fn new(settings: &Settings, addresses: Addresses) -> Self {
        let mut memory = Memory::new(settings.batch * TRAIN_BUFFER_LEN, true);
        let virtio = frame::virtio(Some(settings.packet_len()).filter(|_| settings.train > 1));
        for buffer in memory.chunks_exact_mut(TRAIN_BUFFER_LEN) {
            buffer[TRAIN_START..TRAIN_START + VIRTIO_LEN].copy_from_slice(&virtio);
        }
        let len = VIRTIO_LEN + OUTER_LEN + settings.train * settings.packet_len();
        let tables = settings.icrc_tables.then(CrcTables::new);
        Self { memory, len, addresses, psn: 0, identification: 0, tables }
    }

    fn frames(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.memory
            .chunks_exact(TRAIN_BUFFER_LEN)
            .map(|buffer| &buffer[TRAIN_START..TRAIN_START + self.len])
    }

    /// Writes the next trains into all buffers.
    fn fill(&mut self, memory: &[u8], settings: &Settings) {
        let packet_len = settings.packet_len();
        let payload_len = settings.payload;
        let bytes = settings.train * packet_len;
        for buffer in self.memory.chunks_exact_mut(TRAIN_BUFFER_LEN) {
            let frame = &mut buffer[TRAIN_START + VIRTIO_LEN..TRAIN_START + self.len];
            let outer = self.addresses.outer(self.identification, bytes);
            frame[..OUTER_LEN].copy_from_slice(&outer);
            let mut covered = Covered::new(&outer, packet_len, self.tables.as_ref());
            let packets = frame[OUTER_LEN..].chunks_exact_mut(packet_len);
            for (number, packet) in packets.enumerate() {
                let at = (self.psn as usize * payload_len) & (memory.len() - 1);
                let (body, icrc) = packet.split_at_mut(packet_len - ICRC_LEN);
                let (head, payload) = body.split_at_mut(body.len() - payload_len);
                if settings.whole {
                    let both = frame::bth_and_reth(self.psn, at as u64, payload_len as u32);
                    head.copy_from_slice(&both);
                } else {
                    head.copy_from_slice(&frame::bth(self.psn));
                }
                if settings.fetches_ahead() {
                    let next = (at + payload_len) & (memory.len() - 1);
                    prefetch(&memory[next..next + payload_len]);
                }
                payload.copy_from_slice(&memory[at..at + payload_len]);
                if settings.icrc
                    && let Some((bth, rest)) = body.split_first_chunk::<BTH_LEN>()
                {
                    icrc.copy_from_slice(&covered.icrc(number, bth, rest).to_le_bytes());
                }
                self.psn = (self.psn + 1) & 0xff_ffff;
            }
            self.identification = self.identification.wrapping_add(settings.train as u16);
        }
    }
}

/// The sender goes on this much longer, in seconds, than the receiver measures.
const MARGIN: f64 = 0.2;
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
