//! Rules as sentences.
//!
//! ```text
//! rule    = "fail" calls "with" errno | "fail" completions "with" status | "raise" event "at" moments
//! moments = kind range owner | "every" [nth] kind owner
//! ```
//!
//! `range`, `nth` and `owner` are those of all [sentences](crate::sentence).

use core::fmt::{self, Display, Formatter};

use super::{Errno, FaultEventKind, FaultStatus, VerbFault, VerbMoment, VerbRule, VerbSelector};
use crate::sentence::{FaultRuleError, Owner, Result, Which, Words};

impl VerbRule {
    /// Parses a sentence.
    ///
    /// # Errors
    /// [`FaultRuleError`] with the first word that is wrong.
    pub fn parse(text: &str) -> Result<'_, Self> {
        let mut words = Words::of(text);
        let rule = match words.next() {
            "fail" => {
                let at = moments(&mut words)?;
                words.need("with", "\"with\" and an error")?;
                let word = words.next();
                let fault = match at.moment.is_completion() {
                    true => FaultStatus::named(word).map(VerbFault::Status),
                    false => Errno::named(word).map(VerbFault::Errno),
                };
                let expected = match at.moment.is_completion() {
                    true => "a status such as retry-exceeded, remote-access or flushed",
                    false => "the name of an error such as ENOMEM, EINVAL or EAGAIN",
                };
                Self { fault: fault.ok_or(FaultRuleError { word, expected })?, at }
            }
            "raise" => raised(&mut words)?,
            word => return Err(FaultRuleError { word, expected: "fail or raise" }),
        };
        words.end()?;
        Ok(rule)
    }
}

fn raised<'a>(words: &mut Words<'a>) -> Result<'a, VerbRule> {
    let word = words.next();
    let expected = "qp-fatal, qp-request-error, qp-access-error, cq-error, device-fatal, port-error, \
                    port-active or gid-change";
    let event = FaultEventKind::named(word).ok_or(FaultRuleError { word, expected })?;
    words.need("at", "\"at\" and a call or completion")?;
    let mut ahead = words.clone();
    let at = moments(words)?;
    if event.has_queue_pair() && !at.moment.has_queue_pair() {
        ahead.takes("every");
        ahead.step()?;
        let expected = "post-send, post-recv, modify-qp or completion, which have a queue pair,";
        return Err(FaultRuleError { word: ahead.next(), expected });
    }
    Ok(VerbRule { fault: VerbFault::Raise(event), at })
}

fn moments<'a>(words: &mut Words<'a>) -> Result<'a, VerbSelector> {
    let (moment, which) = if words.takes("every") {
        let step = words.step()?;
        (moment(words)?, Which::Every(step))
    } else {
        (moment(words)?, words.range()?)
    };
    let ahead = words.clone();
    let Owner { queue_pair, rank } = words.owner()?;
    if queue_pair.is_some() && !moment.has_queue_pair() {
        let word = ahead.find("queue");
        let expected = "\"rank\", since the call has no queue pair,";
        return Err(FaultRuleError { word, expected });
    }
    Ok(VerbSelector { moment, which, queue_pair, rank })
}

fn moment<'a>(words: &mut Words<'a>) -> Result<'a, VerbMoment> {
    let word = words.next();
    VerbMoment::named(word).ok_or(FaultRuleError {
        word,
        expected: "open-device, query-device, query-port, query-gid, alloc-pd, dealloc-pd, reg-mr, dereg-mr, \
                   alloc-mw, create-comp-channel, create-cq, resize-cq, create-srq, create-ah, create-qp, modify-qp, post-send, post-recv, post-srq-recv, completion, \
                   send-completion or recv-completion",
    })
}

impl Display for VerbRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let at = self.at;
        match self.fault {
            VerbFault::Errno(errno) => write!(f, "fail {at} with {errno}"),
            VerbFault::Status(status) => write!(f, "fail {at} with {status}"),
            VerbFault::Raise(event) => write!(f, "raise {event} at {at}"),
        }
    }
}

impl Display for VerbSelector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { moment, which, queue_pair, rank } = *self;
        which.write_before(f)?;
        f.write_str(moment.name())?;
        which.write_behind(f)?;
        write!(f, "{}", Owner { queue_pair, rank })
    }
}
