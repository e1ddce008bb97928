//! The table of transitions: which attributes each one needs, and which it takes.

use crate::attributes::{MAX_RD_ATOMIC, QpAttributes, QpState};
use crate::error::ModifyError;

/// An attribute, as the table names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    CurrentState,
    Access,
    PkeyIndex,
    Port,
    Path,
    PathMtu,
    DestQpn,
    RqPsn,
    SqPsn,
    MaxRdAtomic,
    MaxDestRdAtomic,
    MinRnrTimer,
    AckTimeout,
    RetryCount,
    RnrRetry,
    SqdNotify,
    QKey,
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

/// What a reliable connection needs and takes to go from one state to another; `None` where
/// no transition leads.
pub(crate) const fn transition(from: QpState, to: QpState) -> Option<Transition> {
    use QpState::*;
    match (from, to) {
        // From anywhere, without conditions.
        (_, Reset) | (_, Error) => row(&[], &[]),
        (Reset, Init) => row(&[PkeyIndex, Port, Access], &[]),
        (Init, Init) => row(&[], &[PkeyIndex, Port, Access]),
        (Init, ReadyToReceive) => row(
            &[Path, PathMtu, DestQpn, RqPsn, MaxDestRdAtomic, MinRnrTimer],
            &[Access, PkeyIndex],
        ),
        (ReadyToReceive, ReadyToSend) => row(
            &[AckTimeout, RetryCount, RnrRetry, SqPsn, MaxRdAtomic],
            &[CurrentState, Access, MinRnrTimer],
        ),
        (ReadyToSend, ReadyToSend) => row(&[], &[CurrentState, Access, MinRnrTimer]),
        (ReadyToSend, SendQueueDrained) => row(&[], &[SqdNotify]),
        (SendQueueDrained, ReadyToSend) => row(&[], &[CurrentState, Access, MinRnrTimer]),
        (SendQueueDrained, SendQueueDrained) => row(
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

/// Where `asked` leads a queue pair that is in state `from`.
///
/// # Errors
/// The standard does not allow it, or a value has no meaning.
pub(crate) fn judge(from: QpState, asked: &QpAttributes) -> Result<QpState, ModifyError> {
    if let Some(claimed) = asked.current_state.filter(|claimed| *claimed != from) {
        return Err(ModifyError::WrongCurrentState { actual: from, claimed });
    }
    let to = asked.state.unwrap_or(from);
    let Some(Transition { required, optional }) = transition(from, to) else {
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
    sound(Path, asked.path.is_none_or(|it| it.local.is_ipv4() == it.remote.is_ipv4()))
}

impl Attribute {
    const ALL: [Self; 17] = [
        CurrentState,
        Access,
        PkeyIndex,
        Port,
        Path,
        PathMtu,
        DestQpn,
        RqPsn,
        SqPsn,
        MaxRdAtomic,
        MaxDestRdAtomic,
        MinRnrTimer,
        AckTimeout,
        RetryCount,
        RnrRetry,
        SqdNotify,
        QKey,
    ];

    fn is_in(self, asked: &QpAttributes) -> bool {
        match self {
            CurrentState => asked.current_state.is_some(),
            Access => asked.access.is_some(),
            PkeyIndex => asked.pkey_index.is_some(),
            Port => asked.port.is_some(),
            Path => asked.path.is_some(),
            PathMtu => asked.path_mtu.is_some(),
            DestQpn => asked.dest_qpn.is_some(),
            RqPsn => asked.rq_psn.is_some(),
            SqPsn => asked.sq_psn.is_some(),
            MaxRdAtomic => asked.max_rd_atomic.is_some(),
            MaxDestRdAtomic => asked.max_dest_rd_atomic.is_some(),
            MinRnrTimer => asked.min_rnr_timer.is_some(),
            AckTimeout => asked.ack_timeout.is_some(),
            RetryCount => asked.retry_count.is_some(),
            RnrRetry => asked.rnr_retry.is_some(),
            SqdNotify => asked.sqd_notify.is_some(),
            QKey => asked.q_key.is_some(),
        }
    }

    /// The field of [`QpAttributes`].
    const fn name(self) -> &'static str {
        match self {
            CurrentState => "current_state",
            Access => "access",
            PkeyIndex => "pkey_index",
            Port => "port",
            Path => "path",
            PathMtu => "path_mtu",
            DestQpn => "dest_qpn",
            RqPsn => "rq_psn",
            SqPsn => "sq_psn",
            MaxRdAtomic => "max_rd_atomic",
            MaxDestRdAtomic => "max_dest_rd_atomic",
            MinRnrTimer => "min_rnr_timer",
            AckTimeout => "ack_timeout",
            RetryCount => "retry_count",
            RnrRetry => "rnr_retry",
            SqdNotify => "sqd_notify",
            QKey => "q_key",
        }
    }
}
