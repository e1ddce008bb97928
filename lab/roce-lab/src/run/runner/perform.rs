//! Actions of a script.

use roce_fabric::{Impairment, ImpairmentRates};
use roce_transport::{
    Destination, QpState, RecvWr, RemoteAddr, SendOperation, SendWr, Service, SgList,
};

use super::{Runner, attributes_in_words};
use crate::lesson::{Action, LessonError, StateName, rule};

impl Runner {
    pub(super) fn perform(&mut self, action: &Action) -> Result<(), LessonError> {
        match action {
            Action::Modify { host, to } => self.modify(host, *to)?,
            Action::Receive { host, region, bytes, count } => {
                let ((end, side), (_, region)) = (self.end(host)?, self.region(region)?);
                for _ in 0..*count {
                    let work = RecvWr::new(self.next_work(), [region.piece(0, *bytes)]);
                    let posted = match self.srq.filter(|_| side == 1) {
                        Some(srq) => self.world.post_srq_recv(end.host, srq, work),
                        None => self.world.post_recv(end, work),
                    };
                    posted.map_err(|why| self.refused(why))?;
                }
            }
            Action::ArmLimit { limit } => {
                let srq = self.srq.ok_or_else(|| self.unknown("queue", "shared-receives"))?;
                let armed = self.world.arm_srq_limit(1, srq, *limit);
                armed.map_err(|why| self.refused(why))?;
            }
            Action::Send { from, region, bytes, immediate, count, pair, q_key } => {
                let immediate = immediate.map(u32::to_be_bytes);
                for _ in 0..*count {
                    let operation = SendOperation::Send { immediate, invalidate: None };
                    self.post_on(from, *pair, operation, region, *bytes, *q_key)?;
                }
            }
            Action::Write { from, region, bytes, to, offset, key, immediate } => {
                let remote = self.remote(to, *offset, *key)?;
                let immediate = immediate.map(u32::to_be_bytes);
                self.post(from, SendOperation::Write { remote, immediate }, region, *bytes)?;
            }
            Action::Read { from, into, bytes, of } => {
                let remote = self.remote(of, 0, None)?;
                self.post(from, SendOperation::Read { remote }, into, *bytes)?;
            }
            Action::CompareSwap { from, into, of, compare, swap } => {
                let remote = self.remote(of, 0, None)?;
                let (compare, swap) = (*compare, *swap);
                self.post(from, SendOperation::CompareSwap { remote, compare, swap }, into, 8)?;
            }
            Action::FetchAdd { from, into, of, add } => {
                let remote = self.remote(of, 0, None)?;
                self.post(from, SendOperation::FetchAdd { remote, add: *add }, into, 8)?;
            }
            Action::Fault { from, rules } => {
                let host = self.host(from)?;
                self.world.set_impairment(host, rule::impairment(rules));
                self.world.record_script(host, rule::in_words(rules));
            }
            Action::Unplug { host } => {
                let place = self.host(host)?;
                let gone = Impairment::random(
                    0,
                    ImpairmentRates { drop: 1.0, ..ImpairmentRates::default() },
                );
                self.world.set_impairment(place, gone);
                self.world.record_script(place, "(the cable from here is unplugged)");
            }
            Action::Plug { host } => {
                let place = self.host(host)?;
                self.world.set_impairment(place, Impairment::default());
                self.world.record_script(place, "(the cable is plugged in again)");
            }
            Action::Deregister { region } => {
                let (host, span) = self.region(region)?;
                self.world.hosts[host].memory.deregister(span);
                self.world
                    .record_script(host, format!("deregisters {region}: key {:#x}", span.key));
            }
            Action::StartRing {} => {
                let Self { world, ring, section, .. } = self;
                let refused = |why: &dyn ToString| LessonError::Refused {
                    section: *section,
                    why: why.to_string(),
                };
                let ring = ring.as_mut().ok_or_else(|| refused(&"the lesson has no ring"))?;
                ring.start(world).map_err(|why| refused(&why))?;
            }
        }
        Ok(())
    }

    fn post(
        &mut self,
        from: &str,
        operation: SendOperation,
        region: &str,
        bytes: u32,
    ) -> Result<(), LessonError> {
        self.post_on(from, 1, operation, region, bytes, None)
    }

    fn post_on(
        &mut self,
        from: &str,
        pair: usize,
        operation: SendOperation,
        region: &str,
        bytes: u32,
        q_key: Option<u32>,
    ) -> Result<(), LessonError> {
        let ((connection, side), (_, region)) = (self.end_of(from, pair)?, self.region(region)?);
        let pieces =
            if bytes == 0 { SgList::default() } else { SgList::from([region.piece(0, bytes)]) };
        let work = SendWr::new(self.next_work(), operation, pieces).signaled();
        let end = connection.ends[side];
        let posted = match connection.options.service {
            Service::Ud => {
                let to = connection.destination(&self.world, side);
                let to = Destination { q_key: q_key.unwrap_or(to.q_key), ..to };
                self.world.post_send_to(end, work, to)
            }
            _ => self.world.post_send(end, work),
        };
        posted.map_err(|why| self.refused(why))
    }

    fn remote(&self, name: &str, offset: u64, key: Option<u32>) -> Result<RemoteAddr, LessonError> {
        let (_, region) = self.region(name)?;
        let address = region.addr.wrapping_add(offset);
        Ok(RemoteAddr { addr: address, rkey: key.unwrap_or(region.key) })
    }

    fn modify(&mut self, host: &str, to: StateName) -> Result<(), LessonError> {
        let (end, side) = self.end(host)?;
        let (connection, _) = self.end_of(host, 1)?;
        let state = match to {
            StateName::Init => QpState::Init,
            StateName::Rtr => QpState::ReadyToReceive,
            StateName::Rts => QpState::ReadyToSend,
        };
        let attributes = connection
            .bring(&mut self.world, side, state)
            .map_err(|why| LessonError::Refused { section: self.section, why: why.to_string() })?;
        self.world.record_script(
            end.host,
            format!("attributes: {}", attributes_in_words(&attributes).join(", ")),
        );
        Ok(())
    }
}
