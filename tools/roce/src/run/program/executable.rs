//! The program that is run.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadRef};

use crate::error::{CliError, Result};

/// Exit code where a program exists and cannot be started.
pub(crate) const NOT_EXECUTABLE: u8 = 126;

/// Exit code where a program does not exist.
const NOT_FOUND: u8 = 127;

/// A program that can be started.
#[derive(Debug)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: PathBuf,
}

/// Finds a program as a shell does: by its path, or in `PATH`.
pub(crate) fn find(name: &OsStr) -> Result<Program> {
    let shown = Path::new(name).display();
    let is_path = name.as_bytes().contains(&b'/');
    let candidates: Vec<PathBuf> = if is_path {
        vec![PathBuf::from(name)]
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|folder| folder.join(name)).collect()
    };
    let files: Vec<(PathBuf, Metadata)> = candidates
        .into_iter()
        .filter_map(|file| fs::metadata(&file).ok().map(|metadata| (file, metadata)))
        .filter(|(_, metadata)| metadata.is_file())
        .collect();
    let is_executable = |metadata: &Metadata| metadata.permissions().mode() & 0o111 != 0;
    if let Some((path, _)) = files.iter().find(|(_, metadata)| is_executable(metadata)) {
        return Ok(Program { path: path.clone() });
    }
    if !files.is_empty() || (is_path && Path::new(name).exists()) {
        eprintln!("roce: {shown} is not an executable file");
        return Err(CliError::Reported(NOT_EXECUTABLE));
    }
    let place = if is_path { "does not exist" } else { "is not in PATH" };
    let hint = package_of(&name.to_string_lossy())
        .map(|package| format!("; Debian has it in the package {package}"))
        .unwrap_or_default();
    eprintln!("roce: {shown} {place}{hint}");
    Err(CliError::Reported(NOT_FOUND))
}

/// Returns the Debian package of a program whose name tells it.
fn package_of(name: &str) -> Option<&'static str> {
    let packages = [
        ("ib_", "perftest"),
        ("ibv_", "ibverbs-utils"),
        ("ucx_", "ucx-utils"),
        ("fi_", "libfabric-bin"),
        ("ibstat", "infiniband-diags"),
        ("qperf", "qperf"),
    ];
    packages.iter().find(|(start, _)| name.starts_with(start)).map(|(_, package)| *package)
}

impl Program {
    /// Prints a line if the loader will not load the library into the program. The program is run
    /// all the same: the programs that it starts may load it. Returns false if the program must not have the
    /// variables by which these do, since it could not be started with them.
    pub(crate) fn can_have_libraries(&self) -> bool {
        let mut file = self.path.clone();
        if let Some(interpreter) = interpreter_of_script(&file) {
            file = interpreter;
        }
        let Some(obstacle) = obstacle(&file) else { return true };
        let (reason, verbs) = (obstacle.reason(), super::library::VERBS);
        if obstacle == Obstacle::OtherLibrary {
            eprintln!(
                "roce: {} {reason}, so it runs without {verbs}, and so do programs that it starts",
                file.display()
            );
            return false;
        }
        eprintln!(
            "roce: {} {reason}, so it cannot load {verbs}; programs that it starts can",
            file.display()
        );
        true
    }
}

/// Why the loader will not load the library into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    Privileged,
    OtherWidth,
    OtherProcessor,
    Static,
    /// Its loader ends a program for which it cannot load what `LD_PRELOAD` names.
    OtherLibrary,
}

impl Obstacle {
    fn reason(self) -> &'static str {
        match self {
            Self::Privileged => "gets privileges by its file (setuid, setgid or capabilities)",
            Self::OtherWidth => "is not a 64-bit program",
            Self::OtherProcessor => "is built for another processor",
            Self::Static => "is statically linked",
            Self::OtherLibrary => "uses another C library than glibc",
        }
    }
}

/// Returns the program that runs a script.
fn interpreter_of_script(file: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let reader = BufReader::new(File::open(file).ok()?);
    reader.take(256).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8_lossy(line.strip_prefix(b"#!")?).into_owned();
    let mut words = line.split_whitespace();
    let first = words.next()?;
    if !first.ends_with("/env") {
        return Some(first.into());
    }
    let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns why the loader will not load the library into a program, if it is known.
fn obstacle(file: &Path) -> Option<Obstacle> {
    let opened = File::open(file).ok()?;
    let metadata = opened.metadata().ok()?;
    if is_privileged(file, &metadata) {
        return Some(Obstacle::Privileged);
    }
    let cache = ReadCache::new(opened);
    let magic = cache.read_bytes_at(0, 5).ok()?;
    match magic {
        [0x7f, b'E', b'L', b'F', class] if *class == elf::ELFCLASS64.0 => {}
        [0x7f, b'E', b'L', b'F', _] => return Some(Obstacle::OtherWidth),
        _ => return None,
    }
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let own = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    if header.e_machine(endian) != own {
        return Some(Obstacle::OtherProcessor);
    }
    let segments = header.program_headers(endian, &cache).ok()?;
    let interpreter = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_INTERP);
    let Some(interpreter) = interpreter else { return Some(Obstacle::Static) };
    let loader = interpreter.data(endian, &cache).ok()?;
    let is_glibc = loader.windows(8).any(|window| window == b"ld-linux");
    (!is_glibc).then_some(Obstacle::OtherLibrary)
}

/// Returns true if the loader ignores its variables for this program.
fn is_privileged(file: &Path, metadata: &Metadata) -> bool {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2000;
    let mode = metadata.permissions().mode();
    let user = nix::unistd::geteuid();
    let changes_user = mode & SET_USER != 0 && metadata.uid() != user.as_raw();
    let changes_group = mode & SET_GROUP != 0 && metadata.gid() != nix::unistd::getegid().as_raw();
    let has_capabilities =
        rustix::fs::getxattr(file, "security.capability", &mut [0u8; 64][..]).is_ok();
    changes_user || changes_group || (has_capabilities && !user.is_root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).unwrap().path.ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap().path, Path::new("/bin/sh"));
        for (name, code) in [("no-such-program", 127), ("/no/such", 127), ("/etc/passwd", 126)] {
            let refused = find(OsStr::new(name)).unwrap_err();
            assert!(matches!(refused, CliError::Reported(found) if found == code), "{name}");
        }
        assert!(matches!(find(OsStr::new("/")), Err(CliError::Reported(126))));
    }

    #[test]
    fn a_program_of_the_system_can_load_the_library() {
        assert_eq!(obstacle(Path::new("/bin/sh")), None);
        assert_eq!(obstacle(Path::new("/etc/passwd")), None);
    }
}
