//! The architecture of a guest, and all that differs with it.

/// The architecture of a guest's processor.
///
/// ```
/// use roce_guest::{Architecture, Kernel};
/// assert_eq!(Kernel::Stock.directory(Architecture::Arm64), "guest-arm64");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64, which is assumed to be that of this machine.
    #[default]
    X86_64,
    /// arm64.
    Arm64,
}

/// What differs between architectures.
#[derive(Debug)]
pub(crate) struct Properties {
    /// Name in Debian's archive.
    pub(crate) debian: &'static str,
    /// Folder of its libraries, below `/lib` and `/usr/lib`.
    pub(crate) library_folder: &'static str,
    /// Folder in which programs look for the loader of libraries.
    pub(crate) loader_folder: &'static str,
    /// End of the name of the folder of its images.
    pub(crate) directory_suffix: &'static str,
    /// Emulator of a machine.
    pub(crate) qemu: Program,
    /// Options of the emulator: machine and processor.
    pub(crate) machine: &'static [&'static str],
    /// Kernel command line: the console, and what this processor needs.
    pub(crate) kernel_arguments: &'static str,
    /// C compiler.
    pub(crate) compiler: Program,
    /// C library of the compiler, where it is not that of this machine; the name is a file's.
    pub(crate) c_library: Option<Program>,
    /// Runs programs of this architecture, where this machine does not.
    pub(crate) program_emulator: Option<Program>,
}

/// A program and the Debian package with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    /// Returns its name in Debian's archive: `amd64`, `arm64`.
    pub const fn debian(self) -> &'static str {
        self.properties().debian
    }

    /// Returns the architecture with this name in Debian's archive.
    ///
    /// ```
    /// use roce_guest::Architecture;
    /// assert_eq!(Architecture::of_debian("arm64"), Some(Architecture::Arm64));
    /// assert_eq!(Architecture::of_debian("vax"), None);
    /// ```
    pub fn of_debian(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.debian() == name)
    }

    /// Returns true if this machine runs its programs, and has its packages in its lists.
    pub(crate) const fn is_of_this_machine(self) -> bool {
        self.properties().program_emulator.is_none()
    }

    /// Returns what differs with the architecture.
    pub(crate) const fn properties(self) -> &'static Properties {
        match self {
            Self::X86_64 => &X86_64,
            Self::Arm64 => &ARM64,
        }
    }
}

static X86_64: Properties = Properties {
    debian: "amd64",
    library_folder: "x86_64-linux-gnu",
    loader_folder: "/lib64",
    directory_suffix: "",
    qemu: Program { name: "qemu-system-x86_64", package: "qemu-system-x86" },
    machine: &["-cpu", "max"],
    // No timer check: an emulated processor fails it when this machine is busy.
    kernel_arguments: "console=ttyS0 no_timer_check",
    compiler: Program { name: "cc", package: "gcc" },
    c_library: None,
    program_emulator: None,
};

static ARM64: Properties = Properties {
    debian: "arm64",
    library_folder: "aarch64-linux-gnu",
    loader_folder: "/lib",
    directory_suffix: "-arm64",
    qemu: Program { name: "qemu-system-aarch64", package: "qemu-system-arm" },
    // Pointer authentication as qemu likes to do it: the architecture's own algorithm takes most of the time.
    machine: &["-machine", "virt", "-cpu", "max,pauth-impdef=on"],
    kernel_arguments: "console=ttyAMA0",
    compiler: Program { name: "aarch64-linux-gnu-gcc", package: "gcc-aarch64-linux-gnu" },
    c_library: Some(Program {
        name: "/usr/aarch64-linux-gnu/lib/libc.so.6",
        package: "libc6-dev-arm64-cross",
    }),
    program_emulator: Some(Program { name: "qemu-aarch64-static", package: "qemu-user-static" }),
};
