//! A running guest.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::process::{GuestProcess, Output};
use crate::tool::{Tool, make_directory};
use crate::{GuestError, Image};

/// A network card that qemu emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// A paravirtual one.
    Virtio,
    /// Intel's 82540EM. The guest has no driver for it when it boots.
    E1000,
}

/// Configuration of a guest.
#[derive(Clone, Debug)]
pub struct GuestConfig {
    /// Tap device of the guest's network card; it must be up in the network namespace of qemu.
    pub tap: String,
    /// MAC address of the network card; guests on one bridge need different ones.
    pub mac: [u8; 6],
    /// The network card.
    pub card: Card,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Number of processors.
    pub processors: u32,
    /// Maximum time until the guest takes commands.
    pub boot_limit: Duration,
    /// Maximum time of a command in [`Guest::run`].
    pub command_limit: Duration,
}

impl GuestConfig {
    /// Returns the configuration of a guest with a virtio card on `tap`: 512 MiB, two processors,
    /// one minute to boot and one for a command.
    pub fn new(tap: &str) -> Self {
        Self {
            tap: tap.to_owned(),
            mac: [0x52, 0x54, 0x00, 0x09, 0x00, 0x02],
            card: Card::Virtio,
            memory_mib: 512,
            processors: 2,
            boot_limit: Duration::from_secs(60),
            command_limit: Duration::from_secs(60),
        }
    }
}

/// A running guest.
///
/// Several threads may call methods at the same time. Dropping it kills the guest.
#[derive(Debug)]
pub struct Guest {
    control: Arc<Control>,
    console: PathBuf,
    command_limit: Duration,
}

impl Guest {
    /// Boots a guest and waits until it takes commands, which needs a few seconds.
    ///
    /// `spawn` starts qemu, for example in the network namespace of the tap.
    ///
    /// # Errors
    /// [`GuestError::MissingTool`] without qemu; [`GuestError::Gone`] and
    /// [`GuestError::TimedOut`] carry the end of the guest's console.
    pub fn boot(
        image: &Image,
        config: &GuestConfig,
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> Result<Self, GuestError> {
        let console = console_path(image)?;
        let mut command = qemu_command(image, config)?;
        command.arg("-append").arg(format!("{} quiet", kernel_arguments(image)));
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-device").arg(format!("virtio-serial-pci,{VIRTIO_OPTIONS}"));
        command.args(["-chardev", "stdio,id=control,signal=off"]);
        command.args(["-device", "virtserialport,chardev=control,name=guest.control"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let qemu = spawn(command).map_err(GuestError::io("start qemu"))?;
        let (control, ready) = Control::new(qemu, console.clone());
        let guest = Self { control, console, command_limit: config.command_limit };
        match ready.recv_timeout(config.boot_limit) {
            Ok(()) => Ok(guest),
            Err(_) if guest.control.qemu().try_wait().is_ok_and(|status| status.is_some()) => {
                Err(guest.control.gone())
            }
            Err(_) => Err(guest.control.timed_out("booting", config.boot_limit)),
        }
    }

    /// Sets the link MTU of `eth0` and `rxe0` (1500 allows path MTU 1024, 4200 allows 4096), and
    /// replaces their addresses, which have prefix lengths.
    ///
    /// rxe's GID table holds the link-local address at index 0 and then these, from 1, in this
    /// order.
    ///
    /// # Errors
    /// As [`Guest::run_ok`].
    pub fn set_network(&self, mtu: u32, addresses: &[&str]) -> Result<(), GuestError> {
        self.run_ok(&format!("set-network {mtu} {}", addresses.join(" "))).map(drop)
    }

    /// Impairs the guest's outgoing packets by `tc` netem options (`loss 1% duplicate 1%`); an empty
    /// text ends the impairment.
    ///
    /// # Errors
    /// As [`Guest::run_ok`].
    pub fn set_netem(&self, what: &str) -> Result<(), GuestError> {
        let command = match what {
            "" => "tc qdisc del dev eth0 root 2>/dev/null || true".to_owned(),
            what => format!("tc qdisc replace dev eth0 root netem limit 100000 {what}"),
        };
        self.run_ok(&command).map(drop)
    }

    /// Runs a shell command and waits for its end.
    ///
    /// # Errors
    /// [`GuestError::TimedOut`] after [`GuestConfig::command_limit`] (the command is killed),
    /// [`GuestError::Gone`]. A command that fails is no error here: see
    /// [`Output::status`].
    pub fn run(&self, command: &str) -> Result<Output, GuestError> {
        let mut process = self.spawn(command)?;
        process.close_stdin()?;
        process.wait(self.command_limit)
    }

    /// Runs a shell command that must succeed, and returns its standard output.
    ///
    /// # Errors
    /// [`GuestError::CommandFailed`], and as [`Guest::run`].
    pub fn run_ok(&self, command: &str) -> Result<String, GuestError> {
        let Output { status, stdout, stderr } = self.run(command)?;
        if status.is_success() {
            return Ok(stdout);
        }
        Err(GuestError::CommandFailed { command: command.to_owned(), status, stdout, stderr })
    }

    /// Starts a shell command and returns at once.
    ///
    /// # Errors
    /// [`GuestError::Gone`] if the guest has ended.
    pub fn spawn(&self, command: &str) -> Result<GuestProcess, GuestError> {
        GuestProcess::start(Arc::clone(&self.control), command)
    }

    /// Copies a file to the guest, with permission bits `mode`.
    ///
    /// # Errors
    /// As [`Guest::run_ok`].
    pub fn push(&self, path: &str, content: &[u8], mode: u32) -> Result<(), GuestError> {
        // Write another file and rename it: a running program cannot be overwritten.
        let command = format!(
            "cat > '{path}.new' && chmod {mode:o} '{path}.new' && mv '{path}.new' '{path}'"
        );
        let mut process = self.spawn(&command)?;
        process.write(content)?;
        process.close_stdin()?;
        let Output { status, stdout, stderr } = process.wait(self.command_limit)?;
        if status.is_success() {
            return Ok(());
        }
        Err(GuestError::CommandFailed { command, status, stdout, stderr })
    }

    /// Returns the path of the guest's console log.
    pub fn console(&self) -> &std::path::Path {
        &self.console
    }

    /// Powers the guest off and waits a few seconds for its end.
    ///
    /// # Errors
    /// [`GuestError::TimedOut`] if it did not end and was killed.
    pub fn power_off(self) -> Result<(), GuestError> {
        self.control.close();
        let deadline = Instant::now() + POWER_OFF_LIMIT;
        while Instant::now() < deadline {
            match self.control.qemu().try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(source) => {
                    return Err(GuestError::Io { doing: "wait for qemu".into(), source });
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(self.control.timed_out("powering off", POWER_OFF_LIMIT))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut qemu = self.control.qemu();
        if !matches!(qemu.try_wait(), Ok(Some(_))) {
            let _ = qemu.kill(); // it may have ended
            let _ = qemu.wait();
        }
    }
}

/// Returns the qemu command for a guest with an interactive shell on this terminal.
///
/// # Errors
/// [`GuestError::MissingTool`] without qemu.
pub fn interactive_command(
    image: &Image,
    config: &GuestConfig,
    mtu: u32,
    addresses: &[&str],
) -> Result<Command, GuestError> {
    let mut command = qemu_command(image, config)?;
    command.arg("-append").arg(format!(
        "{} quiet guest.shell guest.mtu={mtu} guest.addresses={}",
        kernel_arguments(image),
        addresses.join(",")
    ));
    command.args(["-serial", "mon:stdio"]);
    Ok(command)
}

fn qemu_command(image: &Image, config: &GuestConfig) -> Result<Command, GuestError> {
    let qemu = Tool::Qemu(image.architecture());
    if !qemu.is_installed() {
        let (program, package) = (qemu.program(), qemu.package());
        return Err(GuestError::MissingTool { program, package });
    }
    let mac = config.mac.map(|byte| format!("{byte:02x}")).join(":");
    let mut command = Command::new(qemu.program());
    // Emulation, not KVM: it works on every machine, nested ones included.
    command.args(["-accel", "tcg,thread=multi"]);
    command.args(image.architecture().properties().machine);
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.arg("-smp").arg(config.processors.to_string());
    command.arg("-m").arg(format!("{}M", config.memory_mib));
    command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(image.initramfs());
    command.args(["-device", "virtio-rng-pci"]);
    command.arg("-netdev");
    command.arg(format!("tap,id=net,ifname={},script=no,downscript=no,vhost=off", config.tap));
    // Without event suppression: with it, qemu and the emulated processors sometimes wait for each
    // other, and the network card stops.
    let model = match config.card {
        Card::Virtio => format!("virtio-net-pci,{VIRTIO_OPTIONS}"),
        Card::E1000 => "e1000".to_owned(),
    };
    command.arg("-device").arg(format!("{model},netdev=net,mac={mac},romfile="));
    Ok(command)
}

/// Returns the kernel command line: what the architecture needs, and a reboot on panic (which ends qemu).
fn kernel_arguments(image: &Image) -> String {
    format!("{} panic=-1 mitigations=off", image.architecture().properties().kernel_arguments)
}

/// Returns a new console log for each guest of this process.
fn console_path(image: &Image) -> Result<PathBuf, GuestError> {
    static BOOTED: AtomicU32 = AtomicU32::new(0);
    let logs = image.directory().join("console");
    make_directory(&logs)?;
    let number = BOOTED.fetch_add(1, Ordering::Relaxed);
    let path = logs.join(format!("{}-{number}.log", std::process::id()));
    fs::write(&path, "").map_err(GuestError::io(format!("write {}", path.display())))?;
    Ok(path)
}

/// Properties of virtio devices; see the network card.
const VIRTIO_OPTIONS: &str = "event_idx=off,ioeventfd=off";

const POWER_OFF_LIMIT: Duration = Duration::from_secs(15);
