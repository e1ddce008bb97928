//! Calls on connection management.

use roce_cm::{Agent, StrayDatagram};
use roce_transport::{ApiMisuse, Instant, PathHandle};
use roce_wire::Qpn;

use super::Engine;
use super::management::{Management, ManagementDestination, ManagementPort};
use crate::consumer::Consumer;

impl<C: Consumer> Engine<C> {
    /// Makes queue pair 1 the engine's own, whose datagrams the agent exchanges. The caller lets
    /// the filters pass them: see [`set_numbers`](Self::set_numbers).
    ///
    /// # Errors
    /// [`ApiMisuse::QpExists`] if a queue pair has the number 1, or the engine has an agent.
    pub fn manage_connections(
        &mut self,
        agent: Agent,
        port: Box<dyn ManagementPort>,
    ) -> Result<(), ApiMisuse> {
        if self.management.is_some() {
            return Err(ApiMisuse::QpExists(Qpn::GSI));
        }
        self.endpoint.take_management()?;
        self.management = Some(Box::new(Management::new(agent, port)));
        Ok(())
    }

    /// Returns the agent, if the engine has one. A round must follow whatever makes it send.
    pub fn agent(&mut self) -> Option<&mut Agent> {
        self.management.as_mut().map(|it| &mut it.agent)
    }

    /// Returns when the agent has work, if it has a timer.
    pub fn management_timeout(&self) -> Option<Instant> {
        self.management.as_ref()?.agent.poll_timeout()
    }

    /// Returns true while datagrams of connection management wait for room, or for answers to others. Those that wait
    /// for a path do not count: no peer knows of them.
    pub fn has_unsent_management(&self) -> bool {
        self.management.as_ref().is_some_and(|it| it.has_unsent())
    }

    /// Brings the path that was [asked for](ManagementPort::resolve), or `None` if there is none,
    /// and sends what waits for it. The engine is the path's user until it gives a path back: what
    /// this returns, if anything, is one that it does not use any more.
    pub fn set_management_path(
        &mut self,
        destination: ManagementDestination,
        path: Option<PathHandle>,
    ) -> Option<PathHandle> {
        let (Some(management), mut parts) = self.management_parts() else { return path };
        management.set_path(destination, path, &mut parts)
    }

    /// Answers a datagram that is [for no other process](ManagementPort::push_stray), and sends the
    /// answer.
    pub fn answer_stray(&mut self, stray: &StrayDatagram) {
        let (Some(management), mut parts) = self.management_parts() else { return };
        management.agent.answer_stray(stray.addresses, &stray.datagram[..]);
        management.transmit(&mut parts);
    }
}
