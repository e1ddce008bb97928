//! `cargo xtask action`: runs the steps of `action.yml`, the workflows that `docs/ci` shows and the pods of
//! `docs/kubernetes` in fresh Debian roots, as a GitHub runner or a container engine would.
//!
//! What a runner does with a composite action is little: inputs and their defaults, the variables of each
//! step, and three files by which steps tell the next ones of variables, folders of programs and outputs.
//! So this is a check of the files that users take, not of a copy of them.

mod file;
mod pods;
mod runner;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use roce_netns::Host;

use self::file::{Action, Workflow};
use self::runner::{Job, User};
use crate::debian_root::{BOOKWORM, DebianRoot, Release, TRIXIE};
use crate::private_host::PrivateHost;
use crate::{Result, dist, workspace};

/// What the roots have besides the essential packages: what a hosted runner has, and what the workflows'
/// projects are made with.
const PACKAGES: &str = "ca-certificates,cmake,curl,g++,ibverbs-utils,libcap2-bin,libibverbs-dev,make,perftest,\
                        python3,python3-pytest,python3-pyverbs,sudo";

/// A workflow's file in `docs/ci`, the folder of a project for it, and what the job prints.
struct Example {
    file: &'static str,
    project: &'static str,
    shows: &'static [&'static str],
}

const EXAMPLES: &[Example] = &[
    Example {
        file: "ctest.yml",
        project: "ctest",
        shows: &["100% tests passed", "rxe0", "65536      1000"],
    },
    Example { file: "python.yml", project: "python", shows: &["2 passed"] },
];

/// Lines behind the steps of the action alone, and what they print: what a job finds.
const AFTERWARDS: &str = r#"ulimit -l
echo "library: $(ls "$NCCL_IBVERBS_LIB")"
roce run --local 1 -- ibv_devices
roce run --local 2 -- ib_write_bw -n 1000 -d rxe0
roce run -- ibv_devinfo -l"#;

const AFTERWARDS_SHOWS: &[&str] =
    &["Private hosts work", "/libibverbs.so.1", "rxe0", "65536      1000"];

/// Returns what a job prints of the limit of locked memory. Root of a virtual machine may lift it; root of
/// some containers may not, and the action warns.
fn shown_of_memlock() -> Result<&'static str> {
    let text = fs::read_to_string("/proc/self/status")?;
    let effective = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = u64::from_str_radix(effective.unwrap_or_default().trim(), 16)?;
    let may_lift = effective & 1 << CAP_SYS_RESOURCE != 0;
    Ok(if may_lift { "\nunlimited\n" } else { "the limit of locked memory stays" })
}

/// Number of the capability.
const CAP_SYS_RESOURCE: u32 = 24;

/// Builds an installation, makes the roots that are missing, and runs the jobs.
///
/// # Errors
/// If something cannot be built, or a job does not print what it should.
pub(crate) fn run() -> Result<()> {
    let action = Action::read(&workspace::root().join("action.yml"))?;
    let files = prepare_files()?;
    let private = PrivateHost::new()?;
    let shown: Vec<_> = AFTERWARDS_SHOWS.iter().copied().chain([shown_of_memlock()?]).collect();
    for release in [BOOKWORM, TRIXIE] {
        let root = DebianRoot::new(&format!("runner-{}", release.codename), release, PACKAGES)?;
        let place = Place { root: &root, host: &private.host, files: &files, release };
        for user in [User::Root, User::Sudo] {
            let with = [("artifact", "/check/dist"), ("device-name", "rxe0")];
            let mut job = Job::new(user);
            job.uses(&action, &with)?;
            job.runs(AFTERWARDS);
            place.judge("a folder", user, &job, &shown)?;
        }
        let mut job = Job::new(User::Sudo);
        job.serves_release("/check/release");
        job.uses(&action, &[("device-name", "rxe0")])?;
        job.runs(AFTERWARDS);
        place.judge("a release", User::Sudo, &job, &shown)?;
        for example in EXAMPLES {
            let workflow = Workflow::read(&workspace::root().join("docs/ci").join(example.file))?;
            let mut job = Job::new(User::Sudo);
            job.serves_release("/check/release");
            job.checks_out(&format!("/check/projects/{}", example.project));
            job.follows(&workflow, &action)?;
            place.judge(example.file, User::Sudo, &job, example.shows)?;
        }
        pods::judge(&root, &files)?;
    }
    Ok(())
}

/// Where a job runs.
struct Place<'a> {
    root: &'a DebianRoot,
    host: &'a Host,
    files: &'a Path,
    release: Release,
}

impl Place<'_> {
    fn judge(&self, what: &str, user: User, job: &Job, shows: &[&str]) -> Result<()> {
        let started = Instant::now();
        fs::write(self.files.join("job.sh"), job.script())?;
        let output = self.root.run(self.host, self.files, runner::ENTRY)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let missing = shows.iter().find(|words| !text.contains(**words));
        let name = format!("{}, {what}, {user:?}", self.release.name);
        if !output.status.success() || missing.is_some() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let missing = missing.copied().unwrap_or_default();
            let status = output.status;
            return Err(format!("{name}: {status}, missing {missing:?}\n{text}\n{errors}").into());
        }
        println!("   ok {name} ({:.1} s)", started.elapsed().as_secs_f32());
        Ok(())
    }
}

/// Returns a folder with the action, an installation, a release of it, and the projects.
fn prepare_files() -> Result<PathBuf> {
    let root = workspace::root();
    let files = workspace::target().join("action");
    workspace::remove_folder(&files)?;
    let action = files.join("action/action");
    fs::create_dir_all(&action)?;
    fs::copy(root.join("action/setup.sh"), action.join("setup.sh"))?;
    let installation = dist::installation_for_tests()?;
    copy(&installation, &files.join("dist"))?;
    copy(&root.join("action/projects"), &files.join("projects"))?;
    release(&files)?;
    Ok(files)
}

/// Makes the release that the action fetches: a tarball and its checksum, below the path of its address.
fn release(files: &Path) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let folder = files.join(format!("release/{}/releases/download/v{version}", runner::REPOSITORY));
    fs::create_dir_all(&folder)?;
    let whole = format!("roce-{version}-{}-unknown-linux-gnu", std::env::consts::ARCH);
    let name = format!("{whole}.tar.gz");
    let tarball = folder.join(&name);
    let mut tar = Command::new("tar");
    tar.arg("--create").arg("--gzip").arg("--file").arg(&tarball);
    tar.arg(format!("--transform=s,^dist,{whole},")).arg("--directory").arg(files).arg("dist");
    succeed(&mut tar)?;
    let sums = Command::new("sha256sum").arg(&name).current_dir(&folder).output()?;
    fs::write(folder.join("SHA256SUMS"), sums.stdout)?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    succeed(Command::new("cp").arg("--recursive").arg("--no-target-directory").arg(from).arg(to))
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}
