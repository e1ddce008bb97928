//! The process that dies, and what its peer is told.

use roce_netns::Host;
use roce_tests::verbs_program::roce_run;
use roce_verbs::cm::{Event, EventKind, Id, RejectReason};

use super::PORTS;
use super::peer::{PEER, Peer};
use super::process::Process;

/// How far the victim is when it dies, as seen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Listening,
    ReqSent,
    ReqReceived,
    RepSent,
    RepReceived,
    EstablishedActive,
    EstablishedPassive,
    /// Its peer disconnects in the moment of its death.
    EstablishedBoth,
    DreqSent,
    DreqReceived,
    Timewait,
}

pub(crate) const STATES: [State; 11] = [
    State::Listening,
    State::ReqSent,
    State::ReqReceived,
    State::RepSent,
    State::RepReceived,
    State::EstablishedActive,
    State::EstablishedPassive,
    State::EstablishedBoth,
    State::DreqSent,
    State::DreqReceived,
    State::Timewait,
];

/// Starts the victim under `roce run`, and brings it into a state. Returns it with the peer's end.
pub(crate) fn victim_in(
    state: State,
    is_inner: bool,
    host: &Host,
    peer: &mut Peer<'_>,
) -> (Process, Option<Id>) {
    let mut command = roce_run();
    command.arg("--");
    if is_inner {
        // `roce run` sees the end of its program much later than that of the victim.
        command.args(["sh", "-c", "\"$0\"; exec cat"]);
    }
    command.arg(Process::helper().get_program());
    let mut victim = Process::start(host, command);
    let is_passive = matches!(
        state,
        State::Listening | State::ReqReceived | State::RepSent | State::EstablishedPassive
    );
    if is_passive {
        victim.tell(&format!("listen 0.0.0.0:{}", PORTS[0]));
        victim.expect("listening");
        if state == State::Listening {
            return (victim, None);
        }
        let id = peer.connect(PORTS[0]);
        victim.expect("request");
        if state == State::ReqReceived {
            return (victim, Some(id));
        }
        victim.tell("accept");
        let event = peer.next();
        assert!(matches!(event.kind, EventKind::ConnectResponse(_)), "{event:?}");
        if state == State::EstablishedPassive {
            id.establish().unwrap();
            victim.expect("established");
        }
        return (victim, Some(id));
    }
    victim.tell(&format!("connect {PEER}"));
    victim.expect("connecting");
    let id = peer.request();
    if state == State::ReqSent {
        return (victim, Some(id));
    }
    let parameters = peer.parameters();
    id.accept(&parameters).unwrap();
    victim.expect("response");
    if state == State::RepReceived {
        return (victim, Some(id));
    }
    victim.tell("establish");
    let event = peer.next();
    assert!(matches!(event.kind, EventKind::Established(_)), "{event:?}");
    match state {
        State::DreqSent | State::Timewait => {
            victim.tell("disconnect");
            assert_eq!(peer.next().kind, EventKind::Disconnected);
            if state == State::Timewait {
                id.disconnect().unwrap();
                victim.expect("disconnected");
            }
        }
        State::DreqReceived => {
            id.disconnect().unwrap();
            victim.expect("disconnected");
        }
        _ => {}
    }
    (victim, Some(id))
}

/// Checks that the end is told as the state of the victim demands.
pub(crate) fn check_end(state: State, event: &Event) {
    let is_right = match (state, &event.kind) {
        (State::Listening, EventKind::Rejected { reason, .. }) => {
            *reason == RejectReason::INVALID_SERVICE_ID
        }
        (State::ReqSent, EventKind::Rejected { reason, .. }) => *reason == RejectReason::TIMEOUT,
        (State::ReqReceived | State::RepReceived, EventKind::Rejected { reason, .. }) => {
            *reason == RejectReason::CONSUMER
        }
        // REJ and DREQ are under way together.
        (State::RepSent, EventKind::Rejected { .. } | EventKind::Disconnected) => true,
        (
            State::EstablishedActive
            | State::EstablishedPassive
            | State::EstablishedBoth
            | State::DreqReceived,
            kind,
        ) => *kind == EventKind::Disconnected,
        _ => false,
    };
    assert!(is_right, "{state:?}: {event:?}");
}
