//! What is recorded: a client and a server, run in the two guests.

use std::time::Duration;

use crate::world::World;
use crate::{Error, Family, immediates};

/// What one file holds.
pub(crate) struct Scene {
    /// The file's name, up to the version of IP.
    pub(crate) name: &'static str,
    /// Plays it.
    pub(crate) play: fn(&World, Family) -> Result<(), Error>,
}

/// All of them. Messages of 2500 bytes are First, Middle and Last at path MTU 1024, messages of 61
/// are Only, with padding.
pub(crate) const SCENES: &[Scene] = &[
    Scene {
        name: "uc_send_by_rxe",
        play: |world, family| {
            let gid = family.gid_index();
            for size in [61, 2500] {
                let command = format!("ibv_uc_pingpong -g {gid} -m 1024 -s {size} -n 2 -r 2");
                // They meet over TCP and IPv4; what they exchange then goes by the GIDs.
                run_pair(world, Listen::Tcp(18515), &command, &command, &Family::V4.address(1))?;
            }
            Ok(())
        },
    },
    Scene {
        name: "uc_write_by_rxe",
        play: |world, family| {
            let gid = family.gid_index();
            for size in [61, 2500] {
                let command = format!("ib_write_bw -F -c UC -x {gid} -m 1024 -s {size} -n 5 -t 5");
                run_pair(world, Listen::Tcp(18515), &command, &command, &Family::V4.address(1))?;
            }
            Ok(())
        },
    },
    Scene { name: "uc_imm_by_rxe", play: immediates::play },
    Scene {
        name: "ud_send_by_rxe",
        play: |world, family| {
            let command = format!("ibv_ud_pingpong -g {} -s 61 -n 4 -r 4", family.gid_index());
            run_pair(world, Listen::Tcp(18515), &command, &command, &Family::V4.address(1))
        },
    },
    Scene {
        name: "cm_rping_by_rxe",
        play: |world, family| {
            let server = family.address(1);
            let command = format!("-a {server} -S 64 -C 1");
            let (serve, ask) = (format!("rping -s {command}"), format!("rping -c {command}"));
            run_pair(world, Listen::ConnectionManager, &serve, &ask, "")
        },
    },
    Scene {
        // REJ: no program listens there.
        name: "cm_refused_by_rxe",
        play: |world, family| {
            let command = format!("rping -c -a {} -p 9999 -C 1", family.address(1));
            let output = world.client().run(&command)?;
            match output.status.is_success() {
                true => Err(format!("`{command}` found a listener: {}", output.stdout).into()),
                false => Ok(()),
            }
        },
    },
    Scene {
        // SIDR, and UD SEND Only with Immediate.
        name: "cm_udaddy_by_rxe",
        play: |world, family| {
            let own = |place: usize| match family {
                Family::V4 => format!("udaddy -C 2 -S 61 -b {}", family.address(place)),
                Family::V6 => format!("udaddy -C 2 -S 61 -b {} -P ip6", family.address(place)),
            };
            let ask = format!("{} -s", own(0));
            run_pair(world, Listen::ConnectionManager, &own(1), &ask, &family.address(1))
        },
    },
];

/// How a server shows that it is ready.
#[derive(Clone, Copy)]
enum Listen {
    /// A TCP port.
    Tcp(u16),
    /// An identifier of the connection manager.
    ConnectionManager,
}

/// Starts `serve` in the server and, once it listens, `ask` with `address` behind it in the client;
/// both must end well.
fn run_pair(
    world: &World,
    listen: Listen,
    serve: &str,
    ask: &str,
    address: &str,
) -> Result<(), Error> {
    let mut server = world.server().spawn(serve)?;
    let listens = match listen {
        Listen::Tcp(port) => format!("netstat -ltn | grep -q ':{port} '"),
        Listen::ConnectionManager => "rdma resource show cm_id | grep -q LISTEN".to_owned(),
    };
    let wait = format!("for n in $(seq 1000); do {listens} && exit 0; usleep 10000; done; exit 1");
    if let Err(error) = world.server().run_ok(&wait) {
        let said = server.try_wait()?;
        return Err(format!("`{serve}` does not listen: {said:?}: {error}").into());
    }
    let asked = world.client().run_ok(&format!("{ask} {address}"));
    let served = server.wait(LIMIT);
    asked.map_err(|error| format!("{error}; the server: {served:?}"))?;
    let served = served?;
    if !served.status.is_success() {
        return Err(format!("`{serve}` ended with {}: {}", served.status, served.stderr).into());
    }
    Ok(())
}

const LIMIT: Duration = Duration::from_secs(30);
