//! A server for the tests: sends every message back, to any number of clients.
//!
//! `roce-test-echo INTERFACE ADDRESS:PORT [BACKEND]`; says `ready` when it listens, and serves until
//! its standard input ends or it is killed.

use std::error::Error;
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use roce_tests::fixtures::{TestDevice, device_config};
use roce_verbs::{
    CompletionOperation, CompletionStatus, ConnectOptions, Device, DeviceConfig, MemoryRegion,
    QueuePair, RecvWr, SendOperation, SendWr, exchange,
};

/// The longest message that is echoed.
const MAX_MESSAGE_LEN: usize = 64 << 10;
/// Receives kept posted for each client.
const DEPTH: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("roce-test-echo INTERFACE ADDRESS:PORT".into());
    };
    let listener = TcpListener::bind(address)?;
    let config = match arguments.next() {
        Some(backend) => DeviceConfig { backend: backend.parse()?, ..DeviceConfig::default() },
        None => device_config(),
    };
    let end = TestDevice::of(Device::open(&interface, config)?);
    let (clients, arrivals) = mpsc::channel();
    let acceptor =
        TestDevice { device: end.device.clone(), pd: end.pd.clone(), cq: end.cq.clone() };
    std::thread::spawn(move || {
        loop {
            let mut made = None;
            let accepted = exchange::accept(&listener, |theirs| {
                let client = Client::new(&acceptor)?;
                client.qp.connect_from_init(theirs, &ConnectOptions::default())?;
                let mine = client.qp.dest(None)?;
                made = Some(client);
                Ok::<_, roce_verbs::Error>(mine)
            });
            match accepted {
                Err(error) => eprintln!("a client did not get through: {error}"),
                Ok(_) => made.into_iter().for_each(|client| {
                    clients.send(client).expect("the serving thread outlives this one");
                }),
            }
        }
    });
    std::thread::spawn(|| {
        // The test holds the other end; when it is gone, so are we.
        let _ended = std::io::stdin().read_line(&mut String::new());
        std::process::exit(0);
    });
    println!("ready");
    serve(&end, &arrivals)
}

fn serve(end: &TestDevice, arrivals: &mpsc::Receiver<Client>) -> Result<(), Box<dyn Error>> {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        clients.extend(arrivals.try_iter());
        let Some(done) = end.cq.spin_wait(Duration::from_millis(1)) else { continue };
        let at = loop {
            if let Some(at) = clients.iter().position(|client| client.qp.number() == done.qpn) {
                break at;
            }
            // Its client is on its way through the channel still.
            clients.push(arrivals.recv()?);
        };
        if done.status != CompletionStatus::Success {
            clients.swap_remove(at);
            continue;
        }
        let slot = done.wr_id as usize;
        match done.operation {
            CompletionOperation::Recv => clients[at].echo(slot, done.byte_len as usize)?,
            _ => clients[at].receive(slot)?,
        }
    }
}

/// One connected client and its slots.
struct Client {
    qp: QueuePair,
    region: MemoryRegion,
}

impl Client {
    fn new(end: &TestDevice) -> Result<Self, roce_verbs::Error> {
        let qp = end.pd.queue_pair(&end.cq, &end.cq).build()?;
        qp.init(&ConnectOptions::default())?;
        let region =
            end.pd.register(DEPTH * MAX_MESSAGE_LEN, roce_tests::fixtures::every_right())?;
        let client = Self { qp, region };
        for slot in 0..DEPTH {
            client.receive(slot).expect("a fresh queue pair takes receives");
        }
        Ok(client)
    }

    fn receive(&self, slot: usize) -> Result<(), Box<dyn Error>> {
        let place = self.region.sge(slot * MAX_MESSAGE_LEN..(slot + 1) * MAX_MESSAGE_LEN)?;
        Ok(self.qp.post_recv([RecvWr::new(slot as u64, [place])])?)
    }

    fn echo(&self, slot: usize, len: usize) -> Result<(), Box<dyn Error>> {
        let message = self.region.sge(slot * MAX_MESSAGE_LEN..slot * MAX_MESSAGE_LEN + len)?;
        let work = SendWr::new(slot as u64, SendOperation::send(), [message]).signaled();
        Ok(self.qp.post_send([work])?)
    }
}
