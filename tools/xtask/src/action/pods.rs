//! The pods that `docs/kubernetes` shows, as far as they go without a cluster: their commands, with the rights
//! of a container, on hosts that a veth pair joins.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Instant;

use roce_netns::{Host, Link, VirtualNetwork};
use serde::Deserialize;

use crate::debian_root::DebianRoot;
use crate::{Result, workspace};

/// What container engines leave by default, without NET_RAW.
const CAPABILITIES: &str = "+chown,+dac_override,+fowner,+fsetid,+kill,+mknod,+net_bind_service,\
                            +setfcap,+setgid,+setpcap,+setuid,+sys_chroot,+audit_write";

/// What `roce run` says without NET_RAW.
const FALLBACK: &str = "packets travel by UDP sockets";

/// A server and its client.
#[derive(Debug)]
struct Pair {
    server: Vec<String>,
    client: Vec<String>,
}

/// A document of a file for Kubernetes.
#[derive(Debug, Deserialize)]
struct Document {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    args: Vec<String>,
    security_context: SecurityContext,
}

#[derive(Debug, Deserialize)]
struct SecurityContext {
    capabilities: Capabilities,
}

#[derive(Debug, Deserialize)]
struct Capabilities {
    add: Vec<String>,
}

impl Pair {
    /// Reads a file with a pod of a server, and one of a client that names the server.
    fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)?;
        let documents: Vec<Document> = serde_saphyr::from_multiple(&text)?;
        let args = |name: &str| {
            let is_it = |it: &&Document| it.kind == "Pod" && it.metadata.name == name;
            let pod = documents.iter().find(is_it).ok_or_else(|| format!("no pod {name}"))?;
            match pod.spec.containers.as_slice() {
                [container] if container.security_context.capabilities.add == ["NET_RAW"] => {
                    Ok(container.args.clone())
                }
                _ => Err(format!("{name} is not one container with NET_RAW")),
            }
        };
        Ok(Self { server: args("roce-server")?, client: args("roce-client")? })
    }
}

/// Runs the pods in fresh copies of a root with these files.
///
/// # Errors
/// If they do not print what they should.
pub(super) fn judge(root: &DebianRoot, files: &Path) -> Result<()> {
    let started = Instant::now();
    let pair = Pair::read(&workspace::root().join("docs/kubernetes/pair.yml"))?;
    compile_container(files)?;
    let network = VirtualNetwork::new()?;
    let (server, client) = (network.host("server")?, network.host("client")?);
    network.veth((&server, "eth0"), (&client, "eth0"), Link { mtu: 1500 })?;
    server.address("eth0", "10.9.0.1/24".parse()?)?;
    client.address("eth0", "10.9.0.2/24".parse()?)?;
    let run = |host: &Host, args: &[String], more: &str, before: &str| {
        let words: Vec<_> = args.iter().map(|word| quoted(word)).collect();
        root.run(host, files, &line(&words.join(" "), more, before))
    };

    // With the capability, and in a restricted place: without any, and without a way to one.
    for (more, fallback) in [(",+net_raw", false), ("", true)] {
        let [served, asked] = thread::scope(|scope| {
            let serving = scope
                .spawn(|| run(&server, &pair.server, more, "").map_err(|error| error.to_string()));
            // The policy of the pod starts the client again until the server listens.
            let again = "echo 10.9.0.1 roce-server >>/etc/hosts; for t in 1 2 3 4 5 6 7 8 9; do";
            let asked = run(&client, &pair.client, more, again).map_err(|error| error.to_string());
            let served =
                serving.join().unwrap_or_else(|_| Err("the server's thread died".to_owned()));
            [served, asked]
        });
        for (name, output) in [("server", served?), ("client", asked?)] {
            let text = text(&output);
            let is_right = text.contains("65536      1000") && text.contains(FALLBACK) == fallback;
            if !output.status.success() || !is_right {
                return Err(format!("{name} with {more:?}: {}\n{text}", output.status).into());
            }
        }
    }
    println!("   ok pods with NET_RAW, a pod without ({:.1} s)", started.elapsed().as_secs_f32());
    Ok(())
}

/// Returns the line of the shell that runs a command as a container does. `before` may open a loop, which
/// ends with the first success.
fn line(command: &str, more: &str, before: &str) -> String {
    let before = if before.is_empty() { "for t in 1; do" } else { before };
    format!(
        "cp -r /check/dist/bin /check/dist/lib /usr/local
{before} /check/container setpriv --bounding-set -all,{CAPABILITIES}{more} --inh-caps -all {command} && exit 0
code=$?; sleep 0.5; done; exit $code"
    )
}

/// Compiles the program that takes the seccomp filter of container engines.
fn compile_container(files: &Path) -> Result<()> {
    let source = workspace::root().join("tools/roce/tests/it/run/container.c");
    let compiled =
        Command::new("cc").arg("-o").arg(files.join("container")).arg(source).status()?;
    if compiled.success() { Ok(()) } else { Err("container.c does not compile".into()) }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_that_users_copy_run_programs_by_roce_run() {
        let pair = Pair::read(&workspace::root().join("docs/kubernetes/pair.yml")).unwrap();
        for args in [&pair.server, &pair.client] {
            assert_eq!(args[..3], ["roce", "run", "--"]);
        }
        assert_eq!(pair.client.last().unwrap(), "roce-server");
    }
}
