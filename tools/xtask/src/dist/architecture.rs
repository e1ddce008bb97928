//! The architectures of releases.

/// An architecture that there are releases for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// x86-64, that of this machine.
    X86_64,
    /// arm64.
    Aarch64,
}

impl Architecture {
    /// Returns the name of the target for rustc.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Returns its name for Debian.
    pub(crate) const fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns its name for the kernel, rpm and Python.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Returns the name that a tool of the GNU binutils has for it.
    pub(super) const fn tool(self, tool: BinaryTool) -> &'static str {
        match (self, tool) {
            (Self::X86_64, BinaryTool::Strip) => "strip",
            (Self::X86_64, BinaryTool::Objdump) => "objdump",
            (Self::Aarch64, BinaryTool::Strip) => "aarch64-linux-gnu-strip",
            (Self::Aarch64, BinaryTool::Objdump) => "aarch64-linux-gnu-objdump",
        }
    }
}

/// A tool of the GNU binutils.
#[derive(Clone, Copy, Debug)]
pub(super) enum BinaryTool {
    Strip,
    Objdump,
}
