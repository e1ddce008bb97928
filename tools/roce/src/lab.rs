//! `roce lab`: lessons, packet by packet.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use clap::Args;
use roce_lab::{
    LESSON_TEMPLATE, Ladder, Lesson, LessonFileError, LessonRun, PageLink, PageLinks, Question,
    TextOptions, Verdict,
};

use crate::error::{CliError, Result};
use crate::output::print;

/// Learn RDMA packet by packet: lessons on the real engine, in virtual time
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Name or number of a lesson, or a file with one [default: list all]
    lesson: Option<String>,
    /// Write a lesson with comments that explain every key to the file LESSON, or to standard output
    #[arg(long, conflicts_with_all = ["step", "layers", "verbose", "all", "html"])]
    new: bool,
    /// Wait for Enter before each section, and before the answer
    #[arg(long)]
    step: bool,
    /// Print the layers of these packets, by number
    #[arg(long, value_name = "N", value_delimiter = ',')]
    layers: Vec<usize>,
    /// Print the layers of every packet
    #[arg(short, long, conflicts_with = "layers")]
    verbose: bool,
    /// Print every line of long sequences
    #[arg(long)]
    all: bool,
    /// Write the lesson as one HTML page (`-`: standard output); without LESSON, all lessons
    /// beside an index
    #[arg(long, value_name = "FILE", conflicts_with_all = ["step", "layers", "verbose", "all"])]
    html: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  roce lab                                list the lessons
  roce lab lost-packet                    the whole lesson
  roce lab lost-packet --step             section by section
  roce lab lost-packet --layers 3,7       with the layers of these packets
  roce lab lost-packet --html page.html   the lesson as a page
  roce lab --html lessons.html            all lessons, with an index
  roce lab --new mine.toml                begin a lesson of your own
  roce lab mine.toml                      and run it";

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result {
    if options.new {
        return write_template(options.lesson.as_deref());
    }
    let Some(name) = &options.lesson else {
        return match &options.html {
            Some(index) => write_all(index),
            None => print(&list(&Lesson::all())),
        };
    };
    if is_file_name(name) {
        let (lesson, run) = run_file(Path::new(name))?;
        return show(options, &lesson.name, &run);
    }
    let Some(lesson) = Lesson::find(name) else {
        let lessons = Lesson::all();
        let Some(similar) = similar(&lessons, name) else {
            eprint!("roce: there is no lesson {name:?}. There are:\n\n{}", list(&lessons));
            return Err(CliError::Reported(2));
        };
        eprintln!(
            "roce: there is no lesson {name:?}; did you mean {similar}? `roce lab` lists all"
        );
        return Err(CliError::Reported(2));
    };
    show(options, name, &LessonRun::simulate(&lesson)?)
}

/// Returns true if an argument is meant as a file.
fn is_file_name(argument: &str) -> bool {
    argument.contains('/') || argument.ends_with(".toml")
}

/// Runs the lesson of a file.
fn run_file(path: &Path) -> Result<(Lesson, LessonRun)> {
    let text = std::fs::read_to_string(path).map_err(|why| {
        let what = format!("cannot read {}", path.display());
        match why.kind() {
            io::ErrorKind::NotFound => CliError::new(format!(
                "{what}: {why}; `roce lab --new {}` begins a lesson",
                path.display()
            )),
            _ => CliError::context(what, why),
        }
    })?;
    let wrong = |error: LessonFileError| CliError::new(error.to_string());
    let lesson = Lesson::parse_file(path, &text).map_err(wrong)?;
    let run = LessonRun::simulate(&lesson)
        .map_err(|error| wrong(LessonFileError::of(path, &text, &error)))?;
    Ok((lesson, run))
}

/// Writes the template to a file that does not exist, or to standard output.
fn write_template(file: Option<&str>) -> Result {
    let Some(file) = file.filter(|file| *file != "-") else { return print(LESSON_TEMPLATE) };
    let failed = |why| CliError::context(format!("cannot write {file}"), why);
    let mut new = std::fs::File::create_new(file).map_err(failed)?;
    io::Write::write_all(&mut new, LESSON_TEMPLATE.as_bytes()).map_err(failed)?;
    print(&format!("{file} is a lesson of four packets; `roce lab {file}` runs it\n"))
}

/// Shows a lesson as the options say.
fn show(options: &Options, name: &str, run: &LessonRun) -> Result {
    if let Some(path) = &options.html {
        return write_page(path, &Ladder::of_lesson(run).to_html()?);
    }
    let packets = run.timeline.packets.len();
    if let Some(number) = options.layers.iter().find(|number| !(1..=packets).contains(number)) {
        let text = match packets {
            0 => format!("lesson {name} shows rates and queues, no packets; leave out --layers"),
            _ => format!("there is no packet {number}: the lesson has packets 1 to {packets}"),
        };
        return Err(CliError::new(text));
    }
    let is_terminal = io::stdout().is_terminal();
    let has_colour = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
    let options_of_text = TextOptions {
        layers_of: options.layers.clone(),
        all_layers: options.verbose,
        all_lines: options.all,
        colour: has_colour,
    };
    let asks = is_terminal && io::stdin().is_terminal();
    if options.step && asks {
        return step_through(run, &options_of_text);
    }
    if asks && run.lesson.question.takes_reply() {
        let text = run.text(&options_of_text);
        let answer = run.answer(&options_of_text);
        print(text.strip_suffix(&answer).unwrap_or(&text))?;
        ask(&run.lesson.question)?;
        return print(&answer);
    }
    print(&run.text(&options_of_text))
}

/// Asks for the reply to a question until it is right, or the reader wants the answer.
fn ask(question: &Question) -> Result {
    let mut prompt = format!("  {} (Enter shows the answer): ", question.reply);
    loop {
        print(&prompt)?;
        let mut reply = String::new();
        let read = io::stdin().lock().read_line(&mut reply);
        read.map_err(|why| CliError::context("cannot read from the terminal", why))?;
        if reply.trim().is_empty() {
            return print("\n");
        }
        match question.judge(&reply) {
            Some(Verdict::Wrong) => prompt = "  No. Once more, or Enter: ".to_owned(),
            _ => return print("  Right.\n\n"),
        }
    }
}

/// Returns the names of the lessons that are spelt nearly like another, or have it as a part, if there are any.
fn similar(lessons: &[Lesson], unknown: &str) -> Option<String> {
    let unknown = unknown.to_lowercase();
    let likeness = |name: &str| match name.split('-').any(|word| word == unknown) {
        true => 1.0,
        false => strsim::jaro_winkler(name, &unknown),
    };
    let mut near: Vec<_> = lessons.iter().map(|it| (likeness(&it.name), &*it.name)).collect();
    near.retain(|(likeness, _)| *likeness > NEAR);
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let names: Vec<_> = near.into_iter().take(3).map(|(_, name)| name).collect();
    (!names.is_empty()).then(|| names.join(" or "))
}

/// How like the name of a lesson a word is that is taken for it, from 0 to 1.
const NEAR: f64 = 0.85;

/// Writes an index of the lessons to `index`, and their pages beside it.
fn write_all(index: &Path) -> Result {
    let stem = index.file_stem().filter(|_| index != Path::new("-"));
    let Some(stem) = stem.map(|stem| stem.to_string_lossy().into_owned()) else {
        let text = "several pages need a file name; give one to --html, or name a lesson";
        return Err(CliError::new(text));
    };
    let lessons = Lesson::all();
    let link = |lesson: &Lesson| PageLink {
        address: format!("{stem}-{:02}-{}.html", lesson.number, lesson.name),
        title: lesson.title.clone(),
    };
    let index_address = index.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut entries = String::new();
    for (place, lesson) in lessons.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|place| lessons.get(place));
        let links = PageLinks {
            index: index_address.clone(),
            previous: before.map(link),
            next: lessons.get(place + 1).map(link),
        };
        let page = Ladder::of_lesson(&LessonRun::simulate(lesson)?).to_html_among(&links)?;
        let PageLink { address, title } = link(lesson);
        write_page(&index.with_file_name(&address), &page)?;
        entries += &format!(
            "<li><a href=\"{}\">{}</a><br>{}</li>\n",
            escape(&address),
            escape(&title),
            escape(&lesson.summary)
        );
    }
    write_page(index, &INDEX.replace("{entries}", &entries))
}

const INDEX: &str = "\
<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>RDMA packet by packet</title>
<style>
body { font: 16px/1.5 sans-serif; max-width: 44rem; margin: 2rem auto; padding: 0 1rem; }
li { margin-bottom: 0.7rem; }
</style>
<h1>RDMA packet by packet</h1>
<ol>
{entries}</ol>
</html>
";

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// Writes a page to a file, or to standard output if `path` is `-`.
pub(crate) fn write_page(path: &Path, page: &str) -> Result {
    if path == Path::new("-") {
        return print(page);
    }
    let failed = |why| CliError::context(format!("cannot write {}", path.display()), why);
    std::fs::write(path, page).map_err(failed)
}

/// Prints the lesson part by part, with a pause before each.
fn step_through(run: &LessonRun, options: &TextOptions) -> Result {
    print(&run.title(options))?;
    for place in 0..run.sections.len() {
        pause("Enter goes on")?;
        print(&run.section(place, options))?;
    }
    pause("Enter asks a question")?;
    print(&run.question(options))?;
    match run.lesson.question.takes_reply() {
        true => ask(&run.lesson.question)?,
        false => pause("Enter answers it")?,
    }
    print(&run.answer(options))
}

fn pause(what: &str) -> Result {
    print(&format!("\n[{what}] "))?;
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    match read.map_err(|why| CliError::context("cannot read from the terminal", why))? {
        0 => Err(CliError::Quit), // end of input
        _ => Ok(()),
    }
}

fn list(lessons: &[Lesson]) -> String {
    let width = lessons.iter().map(|lesson| lesson.name.len()).max().unwrap_or(0);
    let line = |lesson: &Lesson| {
        format!("  {:>2}  {:width$}  {}\n", lesson.number, lesson.name, lesson.title)
    };
    let lines: String = lessons.iter().map(line).collect();
    format!("Lessons, by name or number:\n\n{lines}\n  roce lab lost-packet\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_every_lesson() {
        insta::assert_snapshot!("lab_list", list(&Lesson::all()));
    }
}
