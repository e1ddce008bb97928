//! `perf record` around programs that candidates start.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use crate::suite::Launch;

/// Puts programs under `perf record`, and remembers where the recordings are.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    candidate: String,
    made: RefCell<Vec<(String, PathBuf)>>,
}

impl Recorder {
    /// Recordings of a candidate, as files in a folder.
    pub fn new(folder: &Path, candidate: &str) -> Self {
        let made = RefCell::default();
        Self { folder: folder.to_owned(), candidate: candidate.to_owned(), made }
    }

    /// The program of one end, under `perf`: a clock's ticks with the stacks that they find, by
    /// frame pointers. The counters of the processor would be finer, and few virtual machines
    /// have any.
    pub(crate) fn around(&self, end: &str, launch: &Launch) -> Launch {
        let file = self.folder.join(format!("{}-{end}.data", self.candidate.replace(' ', "-")));
        let words = ["record", "--quiet", "--event", "cpu-clock", "--call-graph", "fp"];
        let frequency = TICKS_PER_SECOND.to_string();
        let how = ["--freq", &frequency, "--delay", SET_UP_MILLIS, "--output"];
        self.made.borrow_mut().push((end.to_owned(), file.clone()));
        let perf = Launch::new("perf").args(words).args(how).arg(&file).arg("--");
        launch.clone().under(perf)
    }

    /// Each end with its recording.
    pub fn recordings(&self) -> Vec<(String, PathBuf)> {
        self.made.borrow().clone()
    }
}

/// Not a multiple of anything that a kernel or a program does regularly.
pub(crate) const TICKS_PER_SECOND: u32 = 1999;
/// What comes before all programs are at full speed is left out.
const SET_UP_MILLIS: &str = "400";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_recording_of_its_own() {
        let recorder = Recorder::new(Path::new("/there"), "roce");
        let launch = Launch::new("roce").args(["perf", "write"]);
        let words = recorder.around("rank 0", &launch).in_words();
        assert!(words.starts_with("perf record "), "{words}");
        assert!(words.ends_with(" roce perf write"), "{words}");
        recorder.around("rank 1", &launch);
        let files: Vec<PathBuf> = recorder.recordings().into_iter().map(|(_, file)| file).collect();
        assert_eq!(files.len(), 2);
        assert_ne!(files[0], files[1]);
    }
}
