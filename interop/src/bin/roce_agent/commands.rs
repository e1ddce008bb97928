//! What each command does.

use std::io::Write;

use roce_interop::params::Operation;
use roce_verbs::exchange::QpDest;
use roce_verbs::{
    AddressVector, ConnectOptions, Feth, FlushExtent, Gid, MemoryRegion, PathMtu, Psn,
    QpAttributes, QpState, Qpn, RecvWr, RemoteAddr, RnrTimer, SendOperation, SendWr, Service, Sge,
};

use crate::completions::wait;
use crate::objects::{Objects, Pair};
use crate::parse::Words;
use crate::regions::{memory, register, rights};
use crate::result::Result;
use crate::windows;

/// Obeys one command; returns what stands behind `ok`.
pub(crate) fn obey(
    objects: &mut Objects,
    words: &Words<'_>,
    out: &mut impl Write,
) -> Result<String> {
    match words.at(0) {
        "mr" => {
            let region = register(objects, words, rights(words.text("rights").unwrap_or("l"))?)?;
            Ok(format!(
                "lkey={:#x} rkey={:#x} address={:#x}",
                region.lkey(),
                region.rkey(),
                region.address()
            ))
        }
        "attach" | "detach" => change_group(objects, words),
        "lend" => windows::lend(objects, words),
        "bind" => windows::bind(objects, words),
        "invalidate" => windows::invalidate(objects, words),
        "fill" | "crc" | "get" | "set" => memory(objects, words),
        "qp" => make_pair(objects, words),
        "srq" => make_srq(objects, words),
        "connect" => connect(objects, words),
        "state" => Ok(format!("state={}", state(objects.pair(words.at(1))?.qp.query()?.state))),
        "error" => {
            let attributes =
                QpAttributes { state: Some(QpState::Error), ..QpAttributes::default() };
            objects.pair(words.at(1))?.qp.modify(&attributes)?;
            Ok(String::new())
        }
        "recv" => receive(objects, words),
        "post" => post(objects, words),
        "wait" => wait(objects.pair(words.at(1))?, words, out),
        "counter" => Ok(format!("value={}", objects.device.counter(words.at(1))?)),
        "drop" => objects.drop_object(words.at(1)).map(|()| String::new()),
        other => Err(format!("unknown command: {other}").into()),
    }
}

/// `srq NAME max_wr=N`
fn make_srq(objects: &mut Objects, words: &Words<'_>) -> Result<String> {
    objects.is_free(words.at(1))?;
    let srq = objects.pd.create_srq(words.number("max_wr", 64)?, MAX_SGES)?;
    objects.keep_srq(words.at(1), srq);
    Ok(String::new())
}

/// `qp NAME family=4|6 service=rc|uc|ud srq=NAME send_wr=N recv_wr=N inline=N psn=N access=wra`
fn make_pair(objects: &mut Objects, words: &Words<'_>) -> Result<String> {
    objects.is_free(words.at(1))?;
    let (send_wr, recv_wr) = (words.number("send_wr", 64u32)?, words.number("recv_wr", 64u32)?);
    let want_v4 = words.number("family", 4u8)? == 4;
    let gids = objects.device.gid_table()?;
    let usable = gids.iter().find(|row| {
        let is_local = row.gid.0.starts_with(&[0xfe, 0x80]);
        row.usable && !is_local && is_v4(row.gid) == want_v4
    });
    let row = usable.ok_or("no address of that family")?;
    let service = match words.text("service").unwrap_or("rc") {
        "rc" => Service::Rc,
        "uc" => Service::Uc,
        "ud" => Service::Ud,
        other => return Err(format!("no such service: {other}").into()),
    };
    let send = objects.queue(send_wr as usize + 1)?;
    let recv = objects.queue(recv_wr as usize + 1)?;
    let mut builder = objects
        .pd
        .queue_pair(&send.cq, &recv.cq)
        .service(service)
        .max_send_wr(send_wr)
        .max_recv_wr(recv_wr)
        .max_send_sge(MAX_SGES)
        .max_recv_sge(MAX_SGES)
        .max_inline(words.number("inline", 0u32)?);
    if words.text("psn").is_some() {
        let psn = words.number("psn", 0u32)? & 0xff_ffff;
        builder = builder.first_psn(Psn::new(psn).ok_or("psn")?);
    }
    if let Some(name) = words.text("srq") {
        builder = builder.srq(objects.srq(name).ok_or("no such shared receive queue")?);
    }
    let qp = builder.build()?;
    let access = rights(words.text("access").unwrap_or("wra"))?;
    match service {
        Service::Ud => qp.ready_for_datagrams(Q_KEY)?,
        _ => qp.init(&ConnectOptions { access, ..ConnectOptions::default() })?,
    }
    let gid: String = row.gid.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let reply = format!("qpn={:#x} psn={:#x} gid={gid}", qp.number().get(), qp.first_psn().get());
    let pair = Pair { qp, send, recv, gid_index: row.index, access, destination: None };
    objects.keep_pair(words.at(1), pair);
    Ok(reply)
}

/// `connect NAME qpn=N psn=N gid=DIGITS mtu=BYTES timeout=N retry=N rnr_retry=N min_rnr_timer=N
/// rd_atomic=N dest_rd_atomic=N max_rate=N tclass=N`
fn connect(objects: &mut Objects, words: &Words<'_>) -> Result<String> {
    let pair = objects.pair(words.at(1))?;
    let gid = u128::from_str_radix(words.text("gid").unwrap_or_default(), 16)?;
    let peer = QpDest {
        qpn: Qpn::new(words.number("qpn", 0)?).ok_or("qpn")?,
        psn: Psn::new(words.number("psn", 0)?).ok_or("psn")?,
        gid: Gid(gid.to_be_bytes()),
    };
    let max_rate = Some(words.number("max_rate", 0u64)?).filter(|rate| *rate > 0);
    let traffic_class = words.number("tclass", 0)?;
    if pair.qp.service() == Service::Ud {
        let vector = AddressVector {
            max_rate,
            traffic_class,
            ..AddressVector::new(pair.gid_index, peer.gid)
        };
        let ah = objects.pd.create_ah(&vector)?;
        objects.pair_mut(words.at(1))?.destination = Some((ah, peer.qpn));
        return Ok(String::new());
    }
    let options = ConnectOptions {
        max_rate,
        traffic_class,
        gid_index: Some(pair.gid_index),
        path_mtu: Some(PathMtu::from_bytes(words.number("mtu", 1024)?).ok_or("mtu")?),
        access: pair.access,
        timeout: words.number("timeout", 14)?,
        retry_count: words.number("retry", 7)?,
        rnr_retry: words.number("rnr_retry", 7)?,
        min_rnr_timer: RnrTimer::new(words.number("min_rnr_timer", 12)?).ok_or("min_rnr_timer")?,
        max_rd_atomic: words.number("rd_atomic", 16)?,
        max_dest_rd_atomic: words.number("dest_rd_atomic", 16)?,
        ..ConnectOptions::default()
    };
    pair.qp.connect_from_init(&peer, &options)?;
    Ok(String::new())
}

/// `attach NAME gid=DIGITS`, `detach NAME gid=DIGITS`
fn change_group(objects: &Objects, words: &Words<'_>) -> Result<String> {
    let qp = &objects.pair(words.at(1))?.qp;
    let gid = u128::from_str_radix(words.text("gid").unwrap_or_default(), 16)?;
    let group = Gid(gid.to_be_bytes()).ip();
    if words.at(0) == "attach" {
        qp.attach(group)?
    } else {
        qp.detach(group)?
    }
    Ok(String::new())
}

/// `recv NAME mr=NAME offset=N len=N sges=N count=N step=N id=N`
fn receive(objects: &Objects, words: &Words<'_>) -> Result<String> {
    let (count, step, id) =
        (words.number("count", 1)?, words.number("step", 0u64)?, words.number("id", 0)?);
    for index in 0..count {
        let work = RecvWr::new(id + index, pieces(objects, words, index * step)?);
        match objects.srq(words.at(1)) {
            Some(srq) => srq.post_recv([work])?,
            None => objects.pair(words.at(1))?.qp.post_recv([work])?,
        }
    }
    Ok(String::new())
}

/// `post NAME op=OPERATION mr=NAME offset=N len=N sges=N raddr=N rkey=N imm=N inv=N add=N swap=N
/// compare=N flags=sfiu count=N step=N id=N`
fn post(objects: &Objects, words: &Words<'_>) -> Result<String> {
    let pair = objects.pair(words.at(1))?;
    let name = words.text("op").unwrap_or_default();
    let all = Operation::ALL.into_iter().chain(Operation::NEWER);
    let operation = all.into_iter().find(|operation| operation.name() == name);
    let operation = operation.ok_or_else(|| format!("no such operation: {name}"))?;
    let flags = words.text("flags").unwrap_or_default();
    let (count, step, id) =
        (words.number("count", 1)?, words.number("step", 0u64)?, words.number("id", 0)?);
    // One list for all: they go to the engine together, as a program would post them.
    let mut list = Vec::new();
    for index in 0..count {
        let moved = if operation.is_atomic() { 0 } else { index * step };
        let gather = pieces(objects, words, index * step)?;
        let what = send_operation(operation, words, moved)?;
        let gather = if what.has_empty_response() { Vec::new() } else { gather };
        let mut work = if flags.contains('i') {
            SendWr::inline(id + index, what, bytes_of(objects, words, &gather)?)
        } else {
            SendWr::new(id + index, what, gather)
        };
        work.signaled = !flags.contains('u');
        work.solicited = flags.contains('s');
        work.fence = flags.contains('f');
        list.push(work);
    }
    match &pair.destination {
        Some((ah, qpn)) => pair.qp.post_send_to(list, ah, *qpn, Q_KEY)?,
        None => pair.qp.post_send(list)?,
    }
    Ok(String::new())
}

fn send_operation(operation: Operation, words: &Words<'_>, moved: u64) -> Result<SendOperation> {
    let remote =
        RemoteAddr { addr: words.number("raddr", 0u64)? + moved, rkey: words.number("rkey", 0)? };
    let immediate = Some(words.number("imm", 0u32)?.to_be_bytes());
    Ok(match operation {
        Operation::Send => SendOperation::send(),
        Operation::SendImmediate => SendOperation::Send { immediate, invalidate: None },
        Operation::SendInvalidate => {
            SendOperation::Send { immediate: None, invalidate: Some(words.number("inv", 0)?) }
        }
        Operation::Write => SendOperation::Write { remote, immediate: None },
        Operation::WriteImmediate => SendOperation::Write { remote, immediate },
        Operation::Read => SendOperation::Read { remote },
        Operation::CompareSwap => SendOperation::CompareSwap {
            remote,
            compare: words.number("compare", 0)?,
            swap: words.number("swap", 0)?,
        },
        Operation::FetchAdd => SendOperation::FetchAdd { remote, add: words.number("add", 0)? },
        Operation::AtomicWrite => {
            SendOperation::atomic_write(remote, words.number("swap", 0u64)?.wrapping_add(moved))
        }
        Operation::Flush => SendOperation::Flush {
            remote,
            len: words.number("len", 0)?,
            placement: Feth::GLOBAL,
            extent: match words.number("compare", 0)? {
                0 => FlushExtent::Range,
                _ => FlushExtent::Region,
            },
        },
    })
}

/// The named range, `moved` bytes further, in so many entries, the rest in the last.
fn pieces(objects: &Objects, words: &Words<'_>, moved: u64) -> Result<Vec<Sge>> {
    let Some(name) = words.text("mr") else { return Ok(Vec::new()) };
    let region = objects.region(name)?;
    let len: u32 = words.number("len", 0)?;
    let count: u32 = words.number("sges", 1)?;
    if count == 0 || count > MAX_SGES {
        return Err(format!("sges=1..={MAX_SGES}").into());
    }
    let at = region.address() + words.number("offset", 0u64)? + moved;
    let each = len / count;
    Ok((0..count)
        .map(|index| Sge {
            lkey: region.lkey(),
            addr: at + u64::from(index * each),
            len: if index + 1 == count { len - index * each } else { each },
        })
        .collect())
}

fn bytes_of(objects: &Objects, words: &Words<'_>, gather: &[Sge]) -> Result<Vec<u8>> {
    let region: &MemoryRegion = objects.region(words.text("mr").unwrap_or_default())?;
    let mut bytes = Vec::new();
    for piece in gather {
        let mut part = vec![0; piece.len as usize];
        region.read((piece.addr - region.address()) as usize, &mut part)?;
        bytes.extend(part);
    }
    Ok(bytes)
}

const fn state(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::ReadyToReceive => "RTR",
        QpState::ReadyToSend => "RTS",
        QpState::SendQueueDrain => "SQD",
        QpState::SendQueueError => "SQE",
        QpState::Error => "ERROR",
    }
}

fn is_v4(gid: Gid) -> bool {
    gid.0.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])
}

const MAX_SGES: u32 = 32;
/// The Q_Key of every datagram.
const Q_KEY: u32 = 0x1111_1111;
