//! Questions, and replies of readers.

use serde::{Deserialize, Serialize};

/// A question and its answer.
///
/// ```
/// use roce_lab::{Lesson, Verdict};
///
/// let question = Lesson::find("one-packet").unwrap().question;
/// assert_eq!(question.judge("70"), Some(Verdict::Right));
/// assert_eq!(question.judge("58 bytes"), Some(Verdict::Wrong));
/// ```
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Question.
    pub ask: String,
    /// Answer with its reason.
    pub answer: String,
    /// The short reply that is asked for, in a few words: "bytes of her frame". Without one the reader
    /// only thinks.
    #[serde(default)]
    pub reply: String,
    /// Replies that are right: numbers, or words of which a reply has one.
    #[serde(default)]
    pub accept: Vec<String>,
}

/// Whether a reply is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verdict {
    Right,
    Wrong,
}

impl Question {
    /// Returns true if a reply can be judged.
    pub fn takes_reply(&self) -> bool {
        !self.reply.is_empty() && !self.accept.is_empty()
    }

    /// Judges a reply; `None` if the question takes none.
    ///
    /// A number is right if its value is, whatever stands behind it and however its digits are grouped;
    /// words are if the reply has them, in letters of either case.
    pub fn judge(&self, reply: &str) -> Option<Verdict> {
        if !self.takes_reply() {
            return None;
        }
        let is_right = self.accept.iter().any(|accepted| match number(accepted) {
            Some(wanted) => number(reply) == Some(wanted),
            None => words(reply).contains(&words(accepted)),
        });
        Some(if is_right { Verdict::Right } else { Verdict::Wrong })
    }
}

/// Returns the number that a text begins with. Spaces, commas, apostrophes and underscores may group its
/// digits by three.
fn number(text: &str) -> Option<f64> {
    let mut digits = String::new();
    let mut rest = text.trim().chars().peekable();
    while let Some(letter) = rest.next() {
        let is_group = matches!(letter, ' ' | ',' | '\'' | '_' | '\u{a0}')
            && rest.clone().take_while(char::is_ascii_digit).count() == 3;
        match letter {
            '0'..='9' | '.' => digits.push(letter),
            '-' if digits.is_empty() => digits.push(letter),
            _ if is_group && !digits.is_empty() => {}
            _ => break,
        }
    }
    digits.parse().ok()
}

/// Returns the words of a text with a space around each.
fn words(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric()).filter(|it| !it.is_empty());
    words.fold(" ".to_owned(), |all, word| all + word + " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(accept: &[&str]) -> Question {
        Question {
            ask: "How many?".to_owned(),
            answer: "Many.".to_owned(),
            reply: "a number".to_owned(),
            accept: accept.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_number_is_judged_by_its_value() {
        let question = question(&["125000"]);
        for reply in ["125000", " 125 000 bytes", "125,000", "125_000.0", "125'000"] {
            assert_eq!(question.judge(reply), Some(Verdict::Right), "{reply}");
        }
        for reply in ["", "125", "1250000", "bytes 125000", "12 5000", "-125000"] {
            assert_eq!(question.judge(reply), Some(Verdict::Wrong), "{reply}");
        }
    }

    #[test]
    fn words_are_judged_by_themselves_and_not_as_parts_of_others() {
        let question = question(&["remote access error", "access"]);
        for reply in ["A Remote-Access error", "no access!"] {
            assert_eq!(question.judge(reply), Some(Verdict::Right), "{reply}");
        }
        for reply in ["accessible", "", "error"] {
            assert_eq!(question.judge(reply), Some(Verdict::Wrong), "{reply}");
        }
    }

    #[test]
    fn a_question_without_accepted_replies_takes_none() {
        assert_eq!(question(&[]).judge("70"), None);
    }

    #[test]
    fn every_reply_that_a_lesson_accepts_is_right() {
        for lesson in crate::Lesson::all() {
            for accepted in &lesson.question.accept {
                assert_eq!(
                    lesson.question.judge(accepted),
                    Some(Verdict::Right),
                    "{}",
                    lesson.name
                );
            }
        }
    }
}
