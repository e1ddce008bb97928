//! Stacks of functions, as `perf script` prints them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::symbols::Symbols;

/// Where the ticks of a recording found a program.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Each stack that was found, and how often.
    pub stacks: Vec<Stack>,
    /// From the first tick to the last, in seconds.
    pub seconds: f64,
}

/// A stack, and how often it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The innermost function first.
    pub frames: Vec<Frame>,
    /// How often.
    pub count: u64,
}

/// A function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Its name, for people.
    pub name: String,
    /// The source file that the code is from, where that is known: below the workspace, or from a
    /// crate's name on.
    pub file: Option<String>,
    /// Whose it is.
    pub place: Place,
}

/// Whose a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The kernel's.
    Kernel,
    /// The program's, with what was linked into it.
    Program,
    /// A shared library's.
    Library,
}

/// A line of a stack as it was printed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Call<'a> {
    pub(super) symbol: &'a str,
    pub(super) offset: u64,
    /// A file, or a name of the kernel's in brackets.
    pub(super) object: &'a str,
}

impl Profile {
    /// Reads a recording.
    ///
    /// # Errors
    /// `perf` or `addr2line` is missing or fails, or there is no tick in it.
    pub fn read(recording: &Path) -> Result<Self, String> {
        let mut command = Command::new("perf");
        command.args(["script", "--no-inline", "--no-demangle", "--fields"]);
        command.args(["time,ip,sym,symoff,dso", "--input"]).arg(recording);
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("perf script: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("perf script {}: {}", recording.display(), said.trim()));
        }
        Self::parse(&String::from_utf8_lossy(&output.stdout))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let samples = samples(text);
        let ends = samples.first().zip(samples.last());
        let ((from, _), (to, _)) = ends.ok_or("the recording has no ticks")?;
        let seconds = to - from;
        let calls = samples.iter().flat_map(|(_, calls)| calls.iter().enumerate());
        let symbols = Symbols::of(calls.map(|(depth, call)| (call, depth == 0)))?;
        let mut stacks: BTreeMap<Vec<Frame>, u64> = BTreeMap::new();
        for (_, calls) in &samples {
            let frames = calls.iter().enumerate();
            let frames = frames.flat_map(|(depth, call)| symbols.frames(call, depth == 0));
            *stacks.entry(frames.collect()).or_default() += 1;
        }
        let stacks = stacks.into_iter().map(|(frames, count)| Stack { frames, count }).collect();
        Ok(Self { stacks, seconds })
    }

    /// How many ticks found it running.
    pub fn count(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.count).sum()
    }

    /// Which share of the time it was running, on all its processors together.
    pub fn busy(&self) -> f64 {
        let ticks = self.seconds * f64::from(super::recorder::TICKS_PER_SECOND);
        if ticks > 0.0 { self.count() as f64 / ticks } else { 0.0 }
    }

    /// Whether the kernel keeps the names of its functions to itself.
    pub fn lacks_kernel_names(&self) -> bool {
        let frames = self.stacks.iter().flat_map(|stack| &stack.frames);
        let mut kernel = frames.filter(|frame| frame.place == Place::Kernel).peekable();
        kernel.peek().is_some() && kernel.all(|frame| frame.name == UNKNOWN)
    }
}

/// When each tick was, and its stack.
fn samples(text: &str) -> Vec<(f64, Vec<Call<'_>>)> {
    let mut samples = Vec::new();
    for block in text.split("\n\n") {
        let mut lines = block.lines().filter(|line| !line.trim().is_empty());
        let time = lines.next().and_then(|line| line.trim().trim_end_matches(':').parse().ok());
        let calls: Vec<Call<'_>> = lines.filter_map(call).collect();
        if let Some(time) = time
            && !calls.is_empty()
        {
            samples.push((time, calls));
        }
    }
    samples
}

/// `ffffffff821e8f67 memcpy+0x7 ([kernel.kallsyms])`
fn call(line: &str) -> Option<Call<'_>> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (symbol, object) = rest.rsplit_once(" (")?;
    let object = object.strip_suffix(')')?;
    let (symbol, offset) = match symbol.rsplit_once("+0x") {
        Some((symbol, offset)) => (symbol, u64::from_str_radix(offset, 16).ok()?),
        None => (symbol, 0),
    };
    Some(Call { symbol, offset, object })
}

/// What `perf` calls that it has no name for.
pub(super) const UNKNOWN: &str = "[unknown]";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
 100.500000: 
\tffffffff821e8f67 __pi_memcpy+0x7 ([kernel.kallsyms])
\tffffffff8214de5a skb_copy_bits+0x1a ([kernel.kallsyms])
\t          10ad6a send+0x2a (/usr/lib/libc.so.6)

 101.000000: 
\t           14f38 [unknown] ([unknown])

 102.500000: 
\tffffffff821e8f67 __pi_memcpy+0x9 ([kernel.kallsyms])
\tffffffff8214de5a skb_copy_bits+0x1a ([kernel.kallsyms])
\t          10ad6a send+0x2a (/usr/lib/libc.so.6)
";

    #[test]
    fn stacks_that_are_the_same_are_counted_together() {
        let profile = Profile::parse(TEXT).unwrap();
        assert_eq!((profile.count(), profile.seconds), (3, 2.0));
        let copy = profile.stacks.iter().find(|stack| stack.count == 2).unwrap();
        let names: Vec<&str> = copy.frames.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names, ["__pi_memcpy", "skb_copy_bits", "send"]);
        assert_eq!(copy.frames[0].place, Place::Kernel);
        assert_eq!(copy.frames[2].place, Place::Library);
    }

    #[test]
    fn a_recording_without_ticks_is_told() {
        assert!(Profile::parse("").unwrap_err().contains("no ticks"));
        assert!(Profile::parse("nonsense\n\nmore (of it").is_err());
    }

    #[test]
    fn a_kernel_that_hides_its_names_is_noticed() {
        let hidden = "1.0:\n\tffffffff1 [unknown] ([kernel.kallsyms])\n";
        assert!(Profile::parse(hidden).unwrap().lacks_kernel_names());
        assert!(!Profile::parse(TEXT).unwrap().lacks_kernel_names());
    }
}
