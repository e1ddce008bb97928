//! Stages that need each other, and run beside each other.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::{Log, Outcome, StageResult, Stages, outcome};
use crate::Result;

/// A stage that has not run yet.
pub(crate) struct Stage<'a> {
    pub(crate) name: &'static str,
    /// Stages without which it cannot run. They stand in front of it.
    pub(crate) needs: &'static [&'static str],
    pub(crate) beside: Beside,
    pub(crate) work: Work<'a>,
}

/// What a stage does.
pub(crate) type Work<'a> = Box<dyn FnOnce(&Log) -> Result<StageResult> + Send + 'a>;

/// What may run while a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing: it uses all processors, or judges time.
    Nothing,
    /// Other stages that say so.
    Others,
}

impl Stages {
    /// Runs stages, `at_a_time` of those that may run beside others. The next is the first whose needs have
    /// passed and that what runs admits. One that needs a stage which did not pass is skipped.
    pub(crate) fn run_all(&mut self, stages: Vec<Stage>, at_a_time: usize) {
        let mut waiting = VecDeque::from(stages);
        let mut running: Vec<(&str, Beside)> = Vec::new();
        let (tell, told) = mpsc::channel();
        thread::scope(|threads| {
            loop {
                while let Some(stage) = self.take_next(&mut waiting, &running, at_a_time) {
                    let Stage { name, beside, work, .. } = stage;
                    running.push((name, beside));
                    let (tell, repeat) = (tell.clone(), Arc::clone(&self.repeat));
                    threads.spawn(move || {
                        let started = Instant::now();
                        let run = || outcome(&*repeat, name, work);
                        let outcome = catch_unwind(AssertUnwindSafe(run))
                            .unwrap_or_else(|_| Outcome::Failed("it panicked".to_owned()));
                        // The other side waits until all have told.
                        let _told = tell.send((name, started.elapsed(), outcome));
                    });
                }
                if running.is_empty() {
                    break;
                }
                let Ok((name, took, outcome)) = told.recv() else { break };
                running.retain(|(runs, _)| *runs != name);
                self.add(name, took, outcome);
            }
        });
        for stage in waiting {
            let why = format!("it needs {}, which did not run", stage.needs.join(" and "));
            self.add(stage.name, Duration::ZERO, Outcome::Failed(why));
        }
    }

    /// Takes the stage that can start now, if there is one, and skips those that cannot start any more.
    fn take_next<'a>(
        &mut self,
        waiting: &mut VecDeque<Stage<'a>>,
        running: &[(&str, Beside)],
        at_a_time: usize,
    ) -> Option<Stage<'a>> {
        let runs_alone = running.iter().any(|(_, beside)| *beside == Beside::Nothing);
        let mut at = 0;
        while let Some(stage) = waiting.get(at) {
            let needs = || stage.needs.iter().map(|need| self.ended.get(need));
            let hindrance = needs().find_map(|ended| ended.and_then(Clone::clone));
            let has_needs = needs().all(|ended| ended.is_some());
            let has_room = match stage.beside {
                Beside::Nothing => running.is_empty(),
                Beside::Others => !runs_alone && running.len() < at_a_time,
            };
            if let Some(why) = hindrance {
                let name = stage.name;
                waiting.remove(at);
                self.add(name, Duration::ZERO, Outcome::Skipped(why));
            } else if has_needs && has_room {
                return waiting.remove(at);
            } else {
                at += 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A stage that notes when it begins and ends.
    fn noted<'a>(
        name: &'static str,
        needs: &'static [&'static str],
        beside: Beside,
        notes: &'a Mutex<Vec<String>>,
        passes: bool,
    ) -> Stage<'a> {
        let note = move |what: &str| notes.lock().unwrap().push(format!("{name} {what}"));
        let work = move |_: &Log| {
            note("begins");
            note("ends");
            match passes {
                true => Ok(StageResult::Passed(String::new())),
                false => Err("no".into()),
            }
        };
        Stage { name, needs, beside, work: Box::new(work) }
    }

    fn stages() -> Stages {
        Stages::new(false, |stage| format!("repeat {stage}"))
    }

    #[test]
    fn stages_that_may_run_beside_others_do() {
        let ((to_one, from_other), (to_other, from_one)) = (mpsc::channel(), mpsc::channel());
        let meets = |name, tell: mpsc::Sender<()>, told: mpsc::Receiver<()>| Stage {
            name,
            needs: &[],
            beside: Beside::Others,
            work: Box::new(move |_| {
                tell.send(())?;
                told.recv_timeout(Duration::from_secs(10))?;
                Ok(StageResult::Passed(String::new()))
            }),
        };
        let one = meets("graph test a", to_other, from_other);
        let other = meets("graph test b", to_one, from_one);
        let mut stages = stages();
        stages.run_all(vec![one, other], 2);
        assert_eq!((stages.passed, &stages.failed[..]), (2, &[][..]));
    }

    #[test]
    fn a_stage_that_wants_nothing_beside_it_runs_alone() {
        let notes = Mutex::new(Vec::new());
        let (alone, others) = (Beside::Nothing, Beside::Others);
        let next = |running: &[(&str, Beside)], at_a_time| {
            let stage = |name, beside| noted(name, &[], beside, &notes, true);
            let mut waiting = VecDeque::from([stage("alone", alone), stage("others", others)]);
            stages().take_next(&mut waiting, running, at_a_time).map(|stage| stage.name)
        };
        assert_eq!(next(&[], 2), Some("alone"));
        assert_eq!(next(&[("runs", alone)], 2), None);
        assert_eq!(next(&[("runs", others)], 2), Some("others"));
        assert_eq!(next(&[("runs", others)], 1), None);
    }

    #[test]
    fn a_stage_waits_for_what_it_needs_and_is_skipped_if_that_did_not_pass() {
        let notes = Mutex::new(Vec::new());
        let others = Beside::Others;
        let list = vec![
            noted("graph test g", &[], others, &notes, true),
            noted("graph test h", &[], others, &notes, false),
            noted("graph test i", &["graph test g"], others, &notes, true),
            noted("graph test j", &["graph test h"], others, &notes, true),
            noted("graph test k", &["graph test j"], others, &notes, true),
            noted("graph test l", &["graph test absent"], others, &notes, true),
        ];
        let mut stages = stages();
        stages.run_all(list, 4);
        assert_eq!(stages.passed, 2);
        assert_eq!(stages.failed, ["graph test h", "graph test l"]);
        let why = "graph test h failed";
        assert_eq!(
            stages.skipped,
            [format!("graph test j ({why})"), format!("graph test k ({why})")]
        );
        let notes = notes.into_inner().unwrap();
        let position = |what| notes.iter().position(|it| *it == what).unwrap();
        assert!(position("graph test g ends") < position("graph test i begins"), "{notes:?}");
    }

    #[test]
    fn a_stage_that_panics_fails_and_the_others_go_on() {
        let notes = Mutex::new(Vec::new());
        let panics = Stage {
            name: "graph test m",
            needs: &[],
            beside: Beside::Nothing,
            work: Box::new(|_| panic!("on purpose")),
        };
        let mut stages = stages();
        let other = noted("graph test n", &[], Beside::Nothing, &notes, true);
        stages.run_all(vec![panics, other], 2);
        assert_eq!((stages.passed, &stages.failed[..]), (1, &["graph test m"][..]));
    }
}
