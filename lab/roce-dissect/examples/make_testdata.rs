//! Writes the captures of `testdata/generated`: packets that no available implementation sends.

#[path = "../tests/it/common.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use common::*;
use roce_wire::{Bth, Headers, KnownOpcode, NakCode, Operation, Service, opcode};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: make_testdata FOLDER"))?;
    fs::create_dir_all(&folder)?;
    for ip in [Ip::V4, Ip::V6] {
        let version = if ip == Ip::V4 { "v4" } else { "v6" };
        for opcode in KnownOpcode::all() {
            write(&folder, &format!("{}_{version}", name_of(opcode)), &[sample(opcode, ip)])?;
        }
        write(&folder, &format!("rc_nak_{version}"), &naks(ip))?;
        write(&folder, &format!("cm_{version}"), &connection_management(ip))?;
        write(&folder, &format!("marked_{version}"), &marked(ip))?;
    }
    let v1: Vec<Vec<u8>> = KnownOpcode::all().map(sample_v1).collect();
    write(&folder, "roce_v1", &v1)?;
    write(&folder, "pause", &[pause(0xffff), pause(0), pfc(), pfc_of_all()])?;
    let send = || sample(opcode::RC_SEND_ONLY, Ip::V4);
    write(&folder, "vlan", &[tagged(send(), 1), tagged(send(), 2)])?;
    write(&folder, "train", &[write_train()])?;
    write(&folder, "damage", &damaged())
}

fn write(folder: &Path, name: &str, frames: &[Vec<u8>]) -> io::Result<()> {
    fs::write(folder.join(format!("{name}.pcap")), pcap(frames))
}

fn name_of(opcode: KnownOpcode) -> String {
    opcode.name().to_lowercase().replace(' ', "_")
}

fn naks(ip: Ip) -> Vec<Vec<u8>> {
    let codes = [
        NakCode::PsnSequence,
        NakCode::InvalidRequest,
        NakCode::RemoteAccess,
        NakCode::RemoteOperational,
    ];
    let mut frames: Vec<Vec<u8>> =
        codes.iter().map(|code| frame(&back(ip), &nak(7, *code), &[])).collect();
    frames.push(frame(&back(ip), &rnr(7), &[]));
    frames
}

/// A SEND as its sender wrote it and as a congested switch passes it on, the ACK, and the CNP.
fn marked(ip: Ip) -> Vec<Vec<u8>> {
    let ect = roce_wire::OuterHeaders { traffic_class: 0b10, ..there(ip) };
    let sent = frame(&ect, &asking(opcode::RC_SEND_ONLY, 7), &[9; 8]);
    let mut marked = sent.clone();
    assert!(roce_wire::mark_congestion(&mut marked));
    let plain = ack(7);
    let becn = Headers { bth: Bth { becn: true, ..plain.bth }, ..plain };
    let mut cnp = full_headers(opcode::CNP);
    cnp.bth.dest_qp = plain.bth.dest_qp;
    vec![sent, marked, frame(&back(ip), &becn, &[]), frame(&back(ip), &cnp, &[])]
}

/// A message of each kind.
fn connection_management(ip: Ip) -> Vec<Vec<u8>> {
    let two_ids = [[0x19, 0x4b, 0x7b, 0x0b], [0x07, 0x74, 0x5d, 0x5b]].concat();
    let with = |more: &[u8]| [&two_ids[..], more].concat();
    vec![
        management(ip, 0x10, &cm_req(0xc7_b33c), false),
        management(ip, 0x11, &with(&[0, 0xc0]), true),
        management(ip, 0x13, &cm_rep(0xf9_c73c), true),
        management(ip, 0x14, &two_ids, false),
        management(ip, 0x19, &with(&[0, 0, 0, 0, 0, 0, 0x22, 0xa0]), false),
        management(ip, 0x1a, &with(&[0, 1]), true),
        management(ip, 0x15, &with(&[0, 0, 0x22]), false),
        management(ip, 0x16, &two_ids, true),
        management(ip, 0x12, &with(&[0, 0, 0, 8]), true),
        management(ip, 0x17, &with(&[0, 0, 0, 0, 1, 0x11, 0x1c, 0x06]), false),
        management(ip, 0x18, &with(&[0, 0, 0x22]), true),
    ]
}

/// A WRITE whose Middle packets are one frame.
fn write_train() -> Vec<u8> {
    let middle = |psn| (headers(opcode::RC_WRITE_MIDDLE, psn), payload_of(opcode::RC_WRITE_MIDDLE));
    train(&there(Ip::V4), &[middle(1), middle(2), middle(3), middle(4)])
}

/// Copies of a packet, each damaged at another byte.
fn damaged() -> Vec<Vec<u8>> {
    let good = sample(opcode::RC_SEND_ONLY, Ip::V4);
    let carries = |opcode: &KnownOpcode| {
        opcode.info().service == Service::Rc && opcode.info().operation == Operation::Send
    };
    debug_assert!(carries(&opcode::RC_SEND_ONLY));
    (0..good.len())
        .map(|at| {
            let mut frame = good.clone();
            frame[at] ^= 0x10;
            frame
        })
        .collect()
}
