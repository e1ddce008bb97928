//! Prints a lesson: `cargo run -p roce-lab --example lesson -- 4`.

use roce_lab::{Lesson, LessonRun, TextOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "1".to_owned());
    let lesson = Lesson::find(&name).ok_or("there is no such lesson")?;
    print!("{}", LessonRun::simulate(&lesson)?.text(&TextOptions::default()));
    Ok(())
}
