//! The libraries that a program loads.

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::{CliError, Result};
use crate::run::folder::scratch::Scratch;

/// Name under which programs load the library.
pub(crate) const VERBS: &str = "libibverbs.so.1";

/// Name of the library of replaced calls.
pub(crate) const PRELOAD: &str = "libroce_preload.so";

/// The libraries that were found.
#[derive(Debug)]
pub(crate) struct Libraries {
    verbs: PathBuf,
    preload: PathBuf,
}

/// Finds the libraries: beside this program, as `cargo build` leaves them, or where they are
/// installed.
pub(crate) fn find() -> Result<Libraries> {
    let folders = folders();
    // Cargo cannot give the file the name that programs load.
    let verbs = first(&folders, &[VERBS, "libibverbs.so", "libroce_ibverbs.so"])?;
    Ok(Libraries { verbs, preload: first(&folders, &[PRELOAD])? })
}

/// Returns the folders that may have the libraries.
fn folders() -> Vec<PathBuf> {
    let of_processor = format!("{}-linux-gnu/roce", env::consts::ARCH);
    let program = env::current_exe().ok();
    let own = program.as_deref().and_then(Path::parent);
    let beside = own.iter().flat_map(|own| {
        [own.to_path_buf(), own.join("../lib/roce"), own.join("../lib").join(&of_processor)]
    });
    let installed = ["/usr/local/lib/roce", "/usr/lib/roce"].map(PathBuf::from);
    beside.chain(installed).chain([Path::new("/usr/lib").join(&of_processor)]).collect()
}

fn first(folders: &[PathBuf], names: &[&str]) -> Result<PathBuf> {
    let candidates = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    let found = candidates.into_iter().find(|file| file.is_file());
    let name = names.first().copied().unwrap_or_default();
    found.ok_or_else(|| {
        let beside = folders.first().map(|folder| folder.display().to_string());
        let profile = if cfg!(debug_assertions) { "" } else { " --release" };
        CliError::new(format!(
            "{name} is not in {}, in ../lib/roce, or in /usr/lib/roce; build it with `cargo \
             build{profile} -p roce-ibverbs -p roce-preload`, or install the package whole",
            beside.unwrap_or_default()
        ))
    })
}

impl Libraries {
    /// Returns the absolute path of libibverbs.
    pub(crate) fn verbs_path(&self) -> Result<PathBuf> {
        Ok(std::fs::canonicalize(&self.verbs)?)
    }

    /// Returns the paths of the libraries that are preloaded: where they are installed, since processes of the run
    /// may outlive its folder; links in that folder if a path has characters that separate such paths.
    pub(crate) fn preloaded(&self, scratch: &Scratch) -> Result<[PathBuf; 2]> {
        let path = |file: &Path, link: &str| -> Result<PathBuf> {
            let file = std::fs::canonicalize(file)?;
            let separates = |byte: &u8| b" :;$".contains(byte) || byte.is_ascii_whitespace();
            let is_plain = !file.as_os_str().as_encoded_bytes().iter().any(separates);
            Ok(if is_plain { file } else { scratch.libraries().join(link) })
        };
        Ok([path(&self.verbs, VERBS)?, path(&self.preload, PRELOAD)?])
    }

    /// Makes links to the libraries under the names that programs load.
    pub(crate) fn link_below(&self, scratch: &Scratch) -> Result {
        let folder = scratch.libraries();
        for (file, name) in
            [(&self.verbs, VERBS), (&self.verbs, "libibverbs.so"), (&self.preload, PRELOAD)]
        {
            symlink(std::fs::canonicalize(file)?, folder.join(name))?;
        }
        Ok(())
    }
}
