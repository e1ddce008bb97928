//! Names and source files of functions, inlined ones included, from a program's debug information.
//!
//! The work is binutils': `nm` knows where a symbol is, `addr2line` what was inlined there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::stacks::{Call, Frame, Place, UNKNOWN};

/// What is known of the addresses of a recording.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// By object, symbol, and offset.
    known: BTreeMap<(PathBuf, String, u64), Vec<Frame>>,
}

impl Symbols {
    /// Looks all calls up that are into our own programs; with each comes whether it is innermost.
    pub(super) fn of<'a>(
        calls: impl Iterator<Item = (&'a Call<'a>, bool)>,
    ) -> Result<Self, String> {
        let mut wanted: BTreeMap<&Path, BTreeSet<(&str, u64)>> = BTreeMap::new();
        for (call, innermost) in calls {
            if place(call.object) == Place::Program && call.symbol != UNKNOWN {
                let of_object = wanted.entry(Path::new(call.object)).or_default();
                of_object.insert((call.symbol, at(call, innermost)));
            }
        }
        let mut known = BTreeMap::new();
        for (object, places) in wanted {
            look_up(object, &places, &mut known)?;
        }
        Ok(Self { known })
    }

    /// The functions that a call is in, the innermost first: several where some were inlined.
    pub(super) fn frames(&self, call: &Call<'_>, innermost: bool) -> Vec<Frame> {
        let place = place(call.object);
        if place == Place::Program {
            let offset = at(call, innermost);
            let key = (PathBuf::from(call.object), call.symbol.to_owned(), offset);
            if let Some(frames) = self.known.get(&key) {
                return frames.clone();
            }
        }
        // What has no name says nothing; of the kernel's, that it has none.
        if call.symbol == UNKNOWN && place != Place::Kernel {
            return Vec::new();
        }
        vec![Frame { name: call.symbol.to_owned(), file: None, place }]
    }
}

/// Behind a call is the address where it returns to, which may belong to something else already.
fn at(call: &Call<'_>, innermost: bool) -> u64 {
    if innermost { call.offset } else { call.offset.saturating_sub(1) }
}

fn place(object: &str) -> Place {
    match object {
        "[vdso]" | UNKNOWN => Place::Library,
        _ if object.starts_with('[') || object.ends_with(".ko") => Place::Kernel,
        _ if object.contains(".so") => Place::Library,
        _ => Place::Program,
    }
}

fn look_up(
    object: &Path,
    places: &BTreeSet<(&str, u64)>,
    known: &mut BTreeMap<(PathBuf, String, u64), Vec<Frame>>,
) -> Result<(), String> {
    let text = said(Command::new("nm").arg(object), Stdio::null())?;
    let starts: BTreeMap<&str, u64> = text.lines().filter_map(symbol).collect();
    let asked: Vec<(&str, u64, u64)> = places
        .iter()
        .filter_map(|(symbol, offset)| Some((*symbol, *offset, starts.get(symbol)? + offset)))
        .collect();
    // A file: writing all to a pipe before reading anything would block for ever.
    let questions = std::env::temp_dir().join(format!("addresses-{}", std::process::id()));
    let lines: String = asked.iter().map(|(.., address)| format!("{address:#x}\n")).collect();
    let file = fs::write(&questions, lines).and_then(|()| fs::File::open(&questions));
    let file = file.map_err(|error| format!("{}: {error}", questions.display()))?;
    let mut command = Command::new("addr2line");
    command.args(["--functions", "--inlines", "--addresses", "--demangle", "--exe"]).arg(object);
    let answers = said(&mut command, file.into());
    // A file that stays in the temporary folder does no harm.
    let _ = fs::remove_file(&questions);
    let answers = answers?;
    for ((symbol, offset, _), answer) in asked.iter().zip(answers.split("\n0x")) {
        let key = (object.to_owned(), (*symbol).to_owned(), *offset);
        known.insert(key, chain(answer));
    }
    Ok(())
}

/// `0000000000752c5a t _ZN4core3fmt5write17h0123456789abcdefE`
fn symbol(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    Some((words.nth(1)?, address))
}

/// The functions of an answer: an address, then pairs of lines, the innermost function first.
fn chain(answer: &str) -> Vec<Frame> {
    let lines: Vec<&str> = answer.lines().skip(1).collect();
    let pairs: Vec<(&str, &str)> = lines.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let Some(((symbol, _), (last, _))) = pairs.first().zip(pairs.last()) else {
        return Vec::new();
    };
    // Some versions say the symbol's whole name where the innermost function's name should be.
    let tail = |name: &str| readable(name).rsplit("::").next().map(str::to_owned);
    let both_closures = symbol.contains("closure") && last.contains("closure");
    let is_whole = both_closures || tail(symbol) == tail(last);
    let mut frames: Vec<Frame> = Vec::new();
    for (number, (name, location)) in pairs.iter().enumerate() {
        let Some(file) = shorten(location) else { continue };
        let name = if is_whole && number + 1 == pairs.len() {
            readable(symbol)
        } else if is_whole && number == 0 {
            format!("in {}", file.rsplit('/').next().unwrap_or(&file))
        } else {
            readable(name)
        };
        let frame = Frame { name, file: Some(file), place: Place::Program };
        // What has no name of its own is its caller's, if that is in the same file.
        if frames.last().is_some_and(|it| it.name.starts_with("in ") && it.file == frame.file) {
            frames.pop();
        }
        frames.push(frame);
    }
    frames
}

/// A file from the workspace's folder on, or from a crate's name on; `None` for Rust's own, which
/// is at work in everything and says nothing by itself.
fn shorten(location: &str) -> Option<String> {
    let file = location.split(':').next().unwrap_or(location);
    if file.starts_with("/rustc/") || file.contains("/rustlib/") || file == "??" {
        return None;
    }
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let workspace = here.strip_suffix("bench/").unwrap_or(here);
    if let Some(file) = file.strip_prefix(workspace) {
        return Some(file.to_owned());
    }
    let from_crate = file.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    Some(from_crate.map_or(file, |(_, rest)| rest).to_owned())
}

/// A name without the types it was made for.
pub(super) fn readable(name: &str) -> String {
    // `<A as B>::f` is `A::f`.
    let mut whole = name.to_owned();
    if let Some(rest) = name.strip_prefix('<')
        && let Some(end) = closing(rest)
    {
        let (inside, behind) = (&rest[..end], &rest[end + 1..]);
        whole = format!("{}{behind}", inside.split(" as ").next().unwrap_or(inside));
    }
    let (mut depth, mut text) = (0_u32, String::new());
    for letter in whole.chars() {
        match letter {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    let text = text.replace("::::", "::").replace("{{closure}}", "closure");
    // Within a function they are numbered, which says nothing.
    let text = if text.starts_with("{closure#") { "closure".to_owned() } else { text };
    text.trim_end_matches("::").to_owned()
}

/// Where the bracket closes that was open before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn said(command: &mut Command, input: Stdio) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(input).output();
    let output = output.map_err(|error| format!("{name} (package binutils): {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_without_the_types_it_was_made_for() {
        let names = [
            ("<a::B<D> as c::E>::f::{{closure}}", "a::B::f::closure"),
            ("a::b::<impl a::c::D>::f", "a::b::f"),
            ("a::f<core::option::Option<u8>>", "a::f"),
            ("plain", "plain"),
            ("<broken", ""),
        ];
        for (name, read) in names {
            assert_eq!(readable(name), read, "{name}");
        }
    }

    #[test]
    fn inlined_functions_are_told_apart_and_those_of_the_language_left_out() {
        let bench = env!("CARGO_MANIFEST_DIR");
        let answer = format!(
            "0x74f410\na::Inbound::parse\n/rustc/123/library/core/src/slice/iter.rs:1510\n\
             prefetch<u8>\n{bench}/src/prefetch.rs:17\nparse\n{bench}/src/engine.rs:356\n"
        );
        let frames = chain(&answer);
        let read: Vec<(&str, Option<&str>)> =
            frames.iter().map(|it| (it.name.as_str(), it.file.as_deref())).collect();
        let expected = [
            ("prefetch", Some("bench/src/prefetch.rs")),
            ("a::Inbound::parse", Some("bench/src/engine.rs")),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn code_without_a_name_of_its_own_is_its_callers_in_the_same_file() {
        let bench = env!("CARGO_MANIFEST_DIR");
        let same = format!("0x1\na::write\n{bench}/src/a.rs:3\nwrite\n{bench}/src/a.rs:2\n");
        assert_eq!(chain(&same).len(), 1);
        let other = same.replace("a.rs:3", "b.rs:3");
        assert_eq!(chain(&other)[0].name, "in b.rs");
        assert_eq!(chain(&other)[1].name, "a::write");
    }

    #[test]
    fn a_file_is_told_from_where_its_crate_begins() {
        let file = "/home/a/.cargo/registry/src/index-1/crc32fast-1.5.4/src/lib.rs:7";
        assert_eq!(shorten(file).as_deref(), Some("crc32fast-1.5.4/src/lib.rs"));
        assert_eq!(shorten("??:0"), None);
    }
}
