//! The table of transitions: which attributes each one needs, and which it takes.

use roce_wire::Service;

use crate::attributes::{MAX_RD_ATOMIC, QpAttributes, QpState};
use crate::error::ModifyError;

macro_rules! attributes {
    ($($attribute:ident = $field:ident),+ $(,)?) => {
        /// An attribute, as the table names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Attribute {
            $($attribute),+
        }

        impl Attribute {
            const ALL: [Self; [$(stringify!($field)),+].len()] = [$($attribute),+];

            fn is_in(self, asked: &QpAttributes) -> bool {
                match self {
                    $( $attribute => asked.$field.is_some(), )+
                }
            }

            /// The field of [`QpAttributes`].
            const fn name(self) -> &'static str {
                match self {
                    $( $attribute => stringify!($field), )+
                }
            }
        }

        impl QpAttributes {
            /// Sets the attributes that `other` contains.
            pub(crate) fn merge(&mut self, other: &Self) {
                self.state = other.state.or(self.state);
                $( self.$field = other.$field.or(self.$field); )+
            }
        }
    };
}

attributes! {
    CurrentState = current_state,
    Access = access,
    PkeyIndex = pkey_index,
    Port = port,
    Path = path,
    PathMtu = path_mtu,
    DestQpn = dest_qpn,
    RqPsn = rq_psn,
    SqPsn = sq_psn,
    MaxRdAtomic = max_rd_atomic,
    MaxDestRdAtomic = max_dest_rd_atomic,
    MinRnrTimer = min_rnr_timer,
    AckTimeout = ack_timeout,
    RetryCount = retry_count,
    RnrRetry = rnr_retry,
    SqdNotify = sqd_notify,
    QKey = q_key,
    GapReports = gap_reports,
}

use Attribute::*;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) required: &'static [Attribute],
    pub(crate) optional: &'static [Attribute],
}

const fn row(required: &'static [Attribute], optional: &'static [Attribute]) -> Option<Transition> {
    Some(Transition { required, optional })
}

/// What a queue pair of this service needs and takes to go from one state to another; `None` where
/// no transition leads.
//= rule qp-transitions: InfiniBand 10.3.1; drivers/infiniband/core/verbs.c: qp_state_table
//# The transitions between states of each service, with the attributes that each requires and
//# takes.
pub(crate) const fn transition(service: Service, from: QpState, to: QpState) -> Option<Transition> {
    use QpState::*;
    // From anywhere, without conditions.
    if matches!(to, Reset | Error) {
        return row(&[], &[]);
    }
    match service {
        Service::Rc => rc_transition(from, to),
        Service::Uc => uc_transition(from, to),
        _ => ud_transition(from, to),
    }
}

const fn rc_transition(from: QpState, to: QpState) -> Option<Transition> {
    use QpState::*;
    match (from, to) {
        (Reset, Init) => row(&[PkeyIndex, Port, Access], &[]),
        (Init, Init) => row(&[], &[PkeyIndex, Port, Access]),
        (Init, ReadyToReceive) => row(
            &[Path, PathMtu, DestQpn, RqPsn, MaxDestRdAtomic, MinRnrTimer],
            &[Access, PkeyIndex, GapReports],
        ),
        (ReadyToReceive, ReadyToSend) => row(
            &[AckTimeout, RetryCount, RnrRetry, SqPsn, MaxRdAtomic],
            &[CurrentState, Access, MinRnrTimer],
        ),
        (ReadyToSend, ReadyToSend) => row(&[], &[CurrentState, Access, MinRnrTimer]),
        (ReadyToSend, SendQueueDrain) => row(&[], &[SqdNotify]),
        (SendQueueDrain, ReadyToSend) => row(&[], &[CurrentState, Access, MinRnrTimer]),
        (SendQueueDrain, SendQueueDrain) => row(
            &[],
            &[
                Path,
                AckTimeout,
                RetryCount,
                RnrRetry,
                MaxRdAtomic,
                MaxDestRdAtomic,
                Access,
                PkeyIndex,
                Port,
                MinRnrTimer,
            ],
        ),
        _ => None,
    }
}

const fn uc_transition(from: QpState, to: QpState) -> Option<Transition> {
    use QpState::*;
    match (from, to) {
        (Reset, Init) => row(&[PkeyIndex, Port, Access], &[]),
        (Init, Init) => row(&[], &[PkeyIndex, Port, Access]),
        (Init, ReadyToReceive) => row(&[Path, PathMtu, DestQpn, RqPsn], &[Access, PkeyIndex]),
        (ReadyToReceive, ReadyToSend) => row(&[SqPsn], &[CurrentState, Access]),
        (ReadyToSend | SendQueueDrain | SendQueueError, ReadyToSend) => {
            row(&[], &[CurrentState, Access])
        }
        (ReadyToSend, SendQueueDrain) => row(&[], &[SqdNotify]),
        (SendQueueDrain, SendQueueDrain) => row(&[], &[Path, Access, PkeyIndex]),
        _ => None,
    }
}

const fn ud_transition(from: QpState, to: QpState) -> Option<Transition> {
    use QpState::*;
    match (from, to) {
        (Reset, Init) => row(&[PkeyIndex, Port, QKey], &[]),
        (Init, Init) => row(&[], &[PkeyIndex, Port, QKey]),
        (Init, ReadyToReceive) => row(&[], &[PkeyIndex, QKey]),
        (ReadyToReceive, ReadyToSend) => row(&[SqPsn], &[CurrentState, QKey]),
        (ReadyToSend | SendQueueDrain | SendQueueError, ReadyToSend) => {
            row(&[], &[CurrentState, QKey])
        }
        (ReadyToSend, SendQueueDrain) => row(&[], &[SqdNotify]),
        (SendQueueDrain, SendQueueDrain) => row(&[], &[PkeyIndex, QKey]),
        _ => None,
    }
}

/// Where `asked` leads a queue pair of this service that is in state `from`.
///
/// # Errors
/// The standard does not allow it, or a value has no meaning.
pub(crate) fn validate(
    service: Service,
    from: QpState,
    asked: &QpAttributes,
) -> Result<QpState, ModifyError> {
    //= rule qp-current-state: InfiniBand, clause not known
    //# A caller that is wrong about the current state is refused.
    if let Some(claimed) = asked.current_state.filter(|claimed| *claimed != from) {
        return Err(ModifyError::WrongCurrentState { actual: from, claimed });
    }
    let to = asked.state.unwrap_or(from);
    let Some(Transition { required, optional }) = transition(service, from, to) else {
        return Err(ModifyError::NoTransition { from, to });
    };
    if let Some(missing) = required.iter().find(|it| !it.is_in(asked)) {
        return Err(ModifyError::MissingAttribute { from, to, attribute: missing.name() });
    }
    let known = |it: &Attribute| required.contains(it) || optional.contains(it);
    // A right guess about the current state is never wrong to say.
    if let Some(extra) =
        Attribute::ALL.iter().find(|it| it.is_in(asked) && **it != CurrentState && !known(it))
    {
        return Err(ModifyError::UnexpectedAttribute { from, to, attribute: extra.name() });
    }
    judge_values(asked)?;
    Ok(to)
}

//= rule qp-attribute-ranges: rxe_qp.c: rxe_qp_chk_attr
//# Attributes out of range are refused, and nothing is changed.
fn judge_values(asked: &QpAttributes) -> Result<(), ModifyError> {
    let sound = |attribute: Attribute, sound: bool| match sound {
        true => Ok(()),
        false => Err(ModifyError::OutOfRange { attribute: attribute.name() }),
    };
    sound(PkeyIndex, asked.pkey_index.is_none_or(|it| it == 0))?;
    sound(Port, asked.port.is_none_or(|it| it == 1))?;
    sound(MaxRdAtomic, asked.max_rd_atomic.is_none_or(|it| it <= MAX_RD_ATOMIC))?;
    sound(MaxDestRdAtomic, asked.max_dest_rd_atomic.is_none_or(|it| it <= MAX_RD_ATOMIC))?;
    sound(RetryCount, asked.retry_count.is_none_or(|it| it <= 7))?;
    sound(RnrRetry, asked.rnr_retry.is_none_or(|it| it <= 7))?;
    sound(Path, asked.path.is_none_or(|it| it.is_sound()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    fn every_transition() -> impl Iterator<Item = (Service, QpState, QpState)> {
        [Service::Rc, Service::Uc, Service::Ud].into_iter().flat_map(|service| {
            QpState::ALL
                .into_iter()
                .flat_map(move |from| QpState::ALL.into_iter().map(move |to| (service, from, to)))
        })
    }

    /// Every transition there is, with what it needs and what it takes.
    fn table() -> String {
        let names = |attributes: &[Attribute]| match attributes {
            [] => "-".to_owned(),
            some => some.iter().map(|it| it.name()).collect::<Vec<_>>().join(" "),
        };
        let mut table = String::new();
        for (service, from, to) in every_transition() {
            let Some(row) = transition(service, from, to) else { continue };
            let (required, optional) = (names(row.required), names(row.optional));
            writeln!(table, "{service:?} {from} -> {to}: {required}; {optional}").unwrap();
        }
        table
    }

    //= test qp-transitions
    #[test]
    fn the_table_of_transitions_is_the_standards() {
        assert_eq!(table(), include_str!("modify_table.txt"));
    }

    fn value_of(attribute: Attribute) -> QpAttributes {
        use core::net::{IpAddr, Ipv4Addr};
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let handle = crate::PathHandle(0);
        let (local, remote) = (address, address);
        let path = crate::PathAttributes { handle, local, remote, max_rate: None };
        let mut asked = QpAttributes::default();
        match attribute {
            CurrentState => asked.current_state = Some(QpState::ReadyToSend),
            Access => asked.access = Some(crate::AccessFlags::ALL),
            PkeyIndex => asked.pkey_index = Some(0),
            Port => asked.port = Some(1),
            Path => asked.path = Some(path),
            PathMtu => asked.path_mtu = Some(roce_wire::PathMtu::B1024),
            DestQpn => asked.dest_qpn = Some(roce_wire::Qpn::GSI),
            RqPsn => asked.rq_psn = Some(roce_wire::Psn::ZERO),
            SqPsn => asked.sq_psn = Some(roce_wire::Psn::ZERO),
            MaxRdAtomic => asked.max_rd_atomic = Some(1),
            MaxDestRdAtomic => asked.max_dest_rd_atomic = Some(1),
            MinRnrTimer => asked.min_rnr_timer = Some(roce_wire::RnrTimer::DEFAULT),
            AckTimeout => asked.ack_timeout = Some(crate::AckTimeout::NEVER),
            RetryCount => asked.retry_count = Some(7),
            RnrRetry => asked.rnr_retry = Some(7),
            SqdNotify => asked.sqd_notify = Some(true),
            QKey => asked.q_key = Some(1),
            GapReports => asked.gap_reports = Some(true),
        }
        asked
    }

    fn all_of(attributes: &[Attribute]) -> QpAttributes {
        let mut asked = QpAttributes::default();
        attributes.iter().for_each(|it| asked.merge(&value_of(*it)));
        asked
    }

    //= test qp-transitions
    #[test]
    fn each_required_attribute_is_missed_and_each_that_does_not_belong_is_refused() {
        for (service, from, to) in every_transition() {
            let Some(row) = transition(service, from, to) else {
                let asked = QpAttributes { state: Some(to), ..QpAttributes::default() };
                let refused = Err(ModifyError::NoTransition { from, to });
                assert_eq!(validate(service, from, &asked), refused);
                continue;
            };
            let enough = QpAttributes { state: Some(to), ..all_of(row.required) };
            assert_eq!(validate(service, from, &enough), Ok(to));
            for missing in row.required {
                let rest: Vec<_> =
                    row.required.iter().copied().filter(|it| it != missing).collect();
                let asked = QpAttributes { state: Some(to), ..all_of(&rest) };
                let attribute = missing.name();
                let expected = ModifyError::MissingAttribute { from, to, attribute };
                assert_eq!(validate(service, from, &asked), Err(expected));
            }
            for extra in Attribute::ALL.into_iter().filter(|it| *it != CurrentState) {
                let mut asked = enough;
                asked.merge(&value_of(extra));
                let belongs = row.required.contains(&extra) || row.optional.contains(&extra);
                let judged = validate(service, from, &asked);
                assert_eq!(judged.is_ok(), belongs, "{service:?} {from} {to} {extra:?}");
            }
        }
    }

    //= test qp-attribute-ranges
    #[test]
    fn values_without_a_meaning_are_refused() {
        let base = QpAttributes {
            state: Some(QpState::ReadyToSend),
            ..all_of(&[AckTimeout, RetryCount, RnrRetry, SqPsn, MaxRdAtomic])
        };
        for (asked, attribute) in [
            (QpAttributes { retry_count: Some(8), ..base }, "retry_count"),
            (QpAttributes { rnr_retry: Some(8), ..base }, "rnr_retry"),
            (QpAttributes { max_rd_atomic: Some(MAX_RD_ATOMIC + 1), ..base }, "max_rd_atomic"),
        ] {
            let judged = validate(Service::Rc, QpState::ReadyToReceive, &asked);
            assert_eq!(judged, Err(ModifyError::OutOfRange { attribute }));
        }
        let port = QpAttributes { port: Some(2), ..QpAttributes::default() };
        assert_eq!(
            validate(Service::Rc, QpState::Init, &port),
            Err(ModifyError::OutOfRange { attribute: "port" })
        );
    }

    //= test qp-current-state
    #[test]
    fn a_wrong_belief_about_the_current_state_is_refused() {
        let asked = QpAttributes {
            current_state: Some(QpState::ReadyToSend),
            state: Some(QpState::ReadyToSend),
            ..QpAttributes::default()
        };
        assert_eq!(validate(Service::Rc, QpState::ReadyToSend, &asked), Ok(QpState::ReadyToSend));
        let (actual, claimed) = (QpState::SendQueueDrain, QpState::ReadyToSend);
        let expected = ModifyError::WrongCurrentState { actual, claimed };
        assert_eq!(validate(Service::Rc, QpState::SendQueueDrain, &asked), Err(expected));
    }
}
