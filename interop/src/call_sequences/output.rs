//! What the program prints, as data.

use std::collections::BTreeMap;

/// A sequence of calls, and how its process ended.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The seed that decides its calls.
    pub seed: u64,
    /// Its calls in order.
    pub steps: Vec<Step>,
    /// How its process ended.
    pub ending: Ending,
}

/// How the process of a sequence ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Ended,
    /// A signal with this number ended it.
    Killed(i32),
    /// It was killed when its time was over.
    Hung,
    /// It could not be killed.
    Stuck,
    /// The output ends within the sequence.
    Cut,
}

/// A call, and what could be seen after it until the next call.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The function.
    pub call: String,
    /// Its arguments.
    pub arguments: String,
    /// Its results by name.
    pub results: BTreeMap<String, String>,
    /// Completions, events, descriptors and memory after it, by name.
    pub effects: BTreeMap<String, BTreeMap<String, String>>,
    /// The names of the effects in the order of their lines.
    pub order: Vec<String>,
    /// The line as it was printed.
    pub line: String,
    /// The lines of its effects.
    pub effect_lines: Vec<String>,
}

impl Sequence {
    /// Reads the sequences of an output.
    pub fn read_all(text: &str) -> Vec<Self> {
        let mut sequences = Vec::new();
        let mut open: Option<Self> = None;
        for line in text.lines() {
            let Some(head) = line.strip_prefix("= ") else {
                if let Some(sequence) = &mut open
                    && !line.is_empty()
                {
                    sequence.line(line);
                }
                continue;
            };
            let mut words = head.split(' ');
            let Some(Ok(seed)) = words.next().map(str::parse) else { continue };
            let how = words.next();
            let number = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let Some(how) = how else {
                sequences.extend(open.take());
                open = Some(Self { seed, steps: Vec::new(), ending: Ending::Cut });
                continue;
            };
            if let Some(mut sequence) = open.take() {
                sequence.ending = match how {
                    "ended" => Ending::Ended,
                    "killed" => Ending::Killed(number),
                    "hung" => Ending::Hung,
                    _ => Ending::Stuck,
                };
                sequences.push(sequence);
            }
        }
        sequences.extend(open);
        sequences
    }

    /// Returns how it ended, and after which call.
    pub(super) fn end(&self) -> String {
        format!("{:?} after {}", self.ending, self.last_line())
    }

    /// Returns the last call that was begun.
    pub fn last_line(&self) -> String {
        self.steps.last().map(|step| step.line.clone()).unwrap_or_default()
    }

    fn line(&mut self, line: &str) {
        let first = line.split(' ').next().unwrap_or_default();
        if ["completion", "descriptors", "async", "memory", "event"].contains(&first)
            && let Some(step) = self.steps.last_mut()
        {
            step.effect(first, line);
            return;
        }
        let numbered = first.parse::<u32>().is_ok();
        let text = if numbered { line.split_once(' ').map_or("", |it| it.1) } else { line };
        let (left, right) = text.split_once(" -> ").unwrap_or((text, ""));
        let (call, arguments) = left.split_once(' ').unwrap_or((left, ""));
        self.steps.push(Step {
            call: call.to_owned(),
            arguments: arguments.trim().to_owned(),
            results: words(right),
            line: line.to_owned(),
            ..Step::default()
        });
    }
}

impl Step {
    /// Adds a line of what was seen after the call.
    fn effect(&mut self, kind: &str, line: &str) {
        self.effect_lines.push(line.to_owned());
        let parts: Vec<&str> = line.split(' ').collect();
        // A completion is named by queue and request, memory by its region, an event by all of it.
        let named = match kind {
            "completion" => parts.get(1..3).unwrap_or_default().join(" "),
            "memory" => parts.get(1).unwrap_or(&"").to_string(),
            "descriptors" => String::new(),
            _ => line.split_once(' ').map_or("", |it| it.1).to_owned(),
        };
        let mut name = format!("{kind} {named}");
        while self.effects.contains_key(&name) {
            name.push_str(" again");
        }
        self.order.push(name.clone());
        self.effects.insert(name, words(line));
    }
}

/// Returns the words `name=value` of a text.
fn words(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split(' ').filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_read_as_calls_with_their_effects() {
        let text = "= 4\n01 ibv_post_send qp=q0 -> ret=0 x=1\ncompletion cq=c0 s0.1 status=0\n\
                    descriptors async=o\n02 ibv_alloc_pd place=d1 -> ret=NULL errno=ENOMEM\n= 4 ended 0\n\
                    = 5\n01 ibv_dealloc_pd pd=d0";
        let sequences = Sequence::read_all(text);
        assert_eq!(sequences.len(), 2);
        let [first, second] = &sequences[..] else { panic!() };
        assert_eq!((first.seed, &first.ending), (4, &Ending::Ended));
        assert_eq!(first.steps[0].results["x"], "1");
        assert_eq!(first.steps[0].effects["completion cq=c0 s0.1"]["status"], "0");
        assert_eq!(first.steps[1].arguments, "place=d1");
        assert_eq!((second.seed, &second.ending), (5, &Ending::Cut));
        assert_eq!(second.last_line(), "01 ibv_dealloc_pd pd=d0");
    }
}
