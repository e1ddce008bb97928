//! A client connects to a server, and its first REQ is lost: the time of this program is a number, so that nothing is
//! waited for.

use std::error::Error;

use roce_cm::{
    AcceptParameters, Agent, AgentConfig, ConnectParameters, ConnectionAddresses,
    DatagramAddresses, Disposition, Event, ListenParameters,
};
use roce_wire::management::PortSpace;
use roce_wire::{Instant, Qpn};

/// Carries what waits at `from` to `to`, and returns the number of datagrams.
fn carry(now: Instant, from: &mut Agent, to: &mut Agent) -> usize {
    let mut carried = 0;
    while let Some(transmit) = from.poll_transmit() {
        let DatagramAddresses { local, remote } = transmit.addresses;
        let received_on = DatagramAddresses { local: remote, remote: local };
        let disposition = to.handle_datagram(now, received_on, &transmit.datagram[..]);
        assert_eq!(disposition, Disposition::Handled);
        carried += 1;
    }
    carried
}

fn main() -> Result<(), Box<dyn Error>> {
    let qpn = |number| Qpn::new(number).ok_or("24 bits");
    let mut client = Agent::new(AgentConfig::new(1, 1, vec![[10, 0, 0, 1].into()]));
    let mut server = Agent::new(AgentConfig::new(2, 2, vec![[10, 0, 0, 2].into()]));
    let (space, address) = (PortSpace::TCP, [0, 0, 0, 0].into());
    server.listen(&ListenParameters { space, port: 7174, address, backlog: 8 })?;

    let addresses =
        ConnectionAddresses { local: "10.0.0.1:40000".parse()?, remote: "10.0.0.2:7174".parse()? };
    let id = client.connect(Instant::START, &ConnectParameters::new(addresses, qpn(0x11)?))?;
    let lost = client.poll_transmit().ok_or("no REQ")?;
    assert_eq!(lost.addresses.remote, addresses.remote.ip());

    // The agent says when it wants to be called, and repeats the REQ then.
    let now = client.poll_timeout().ok_or("no timer")?;
    client.handle_timeout(now);
    assert_eq!(carry(now, &mut client, &mut server), 1);
    let Some(Event::ConnectRequest { id: accepted, request, .. }) = server.poll_event() else {
        return Err("no request".into());
    };
    server.accept(now, accepted, &AcceptParameters::new(qpn(0x22)?))?;
    carry(now, &mut server, &mut client);
    assert!(matches!(client.poll_event(), Some(Event::ConnectResponse { .. })));

    // Each side now knows what its queue pair needs for RTR.
    assert_eq!(client.rtr_attributes(id)?.dest_qpn, qpn(0x22)?);
    assert_eq!(server.rtr_attributes(accepted)?.dest_qpn, request.remote_qpn);
    client.establish(id, &[])?;
    carry(now, &mut client, &mut server);
    assert_eq!(server.poll_event(), Some(Event::Established { id: accepted }));

    client.disconnect(now, id)?;
    carry(now, &mut client, &mut server);
    assert!(matches!(server.poll_event(), Some(Event::Disconnected { .. })));
    println!("connected and disconnected after {now:?} of virtual time");
    Ok(())
}
