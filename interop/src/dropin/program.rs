//! A command line of an unmodified program, and what it must do.

/// A command line that is run on our library.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Which table it is in.
    pub group: &'static str,
    /// The line. With two hosts the client's has the server's address appended, or in the place of
    /// `{peer?}`.
    pub line: &'static str,
    /// Commands of a shell that runs the line behind them.
    pub before: &'static str,
    /// Further options of `roce run`.
    pub options: &'static [&'static str],
    /// Private hosts that run it at the same time.
    pub hosts: u8,
    /// What it must do.
    pub expects: Expects,
    /// The places that it is run in.
    pub places: Places,
    /// Part of the quick table.
    pub is_quick: bool,
}

/// What a program must do.
#[derive(Clone, Copy, Debug)]
pub enum Expects {
    /// End with status 0 at every end, and print each of these.
    Success(&'static [&'static str]),
    /// End with another status, and print this: what it does without the feature on any machine.
    Refusal(&'static str),
    /// What [`Success`](Self::Success) says, or, in older releases of the program, what
    /// [`Refusal`](Self::Refusal) says.
    SuccessOrRefusal(&'static [&'static str], &'static str),
}

/// Where a line of two ends is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// Ours at both ends.
    Ours,
    /// Ours at both ends, and each end against rxe in the guest.
    OursAndRxe,
    /// Ours at both ends, and our server with a client on rxe in the guest.
    OursAndRxeClient,
}

impl Program {
    /// Returns a line of one host that must succeed and print these.
    pub const fn alone(line: &'static str, prints: &'static [&'static str]) -> Self {
        let expects = Expects::Success(prints);
        Self {
            group: "",
            line,
            before: "",
            options: &[],
            hosts: 1,
            expects,
            places: Places::Ours,
            is_quick: false,
        }
    }

    /// Returns a line of a server and a client that must succeed and print these.
    pub const fn pair(line: &'static str, prints: &'static [&'static str]) -> Self {
        Self { hosts: 2, ..Self::alone(line, prints) }
    }

    /// Runs it against rxe, too.
    pub const fn and_rxe(self) -> Self {
        Self { places: Places::OursAndRxe, ..self }
    }

    /// Runs it with a client on rxe, too.
    pub const fn and_rxe_client(self) -> Self {
        Self { places: Places::OursAndRxeClient, ..self }
    }

    /// Runs it in a shell, behind these commands, which end with a semicolon.
    pub const fn behind(self, before: &'static str) -> Self {
        Self { before, ..self }
    }

    /// Runs it with these options of `roce run`.
    pub const fn under(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// Adds it to the quick table.
    pub const fn quick(self) -> Self {
        Self { is_quick: true, ..self }
    }

    /// Expects it to be refused with these words.
    pub const fn refused(self, says: &'static str) -> Self {
        Self { expects: Expects::Refusal(says), ..self }
    }

    /// Expects older releases to refuse it with these words.
    pub const fn or_refused(self, says: &'static str) -> Self {
        let expects = match self.expects {
            Expects::Success(prints) => Expects::SuccessOrRefusal(prints, says),
            other => other,
        };
        Self { expects, ..self }
    }

    /// Puts it into a table.
    pub const fn of(self, group: &'static str) -> Self {
        Self { group, ..self }
    }

    /// Returns the line with the options in front of it.
    pub fn title(&self) -> String {
        [self.options, &[self.line]].concat().join(" ")
    }

    /// Returns what is run: the line with the commands before it.
    pub fn commands(&self) -> String {
        match self.before {
            "" => self.line.to_owned(),
            before => format!("{before} {}", self.line),
        }
    }
}
