//! Kernel modules of the guest in the order of loading.

use std::collections::BTreeMap;

use crate::GuestError;

/// Modules that the guest loads; the kernel's list adds their dependencies.
const WANTED: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "virtio-rng",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    "sch_netem",
    "veth",
    "bridge",
];

/// Modules that the guest loads if the kernel has them. rxe of older kernels takes its CRC from one of these, the
/// first on x86-64 and the second on arm64; newer kernels compute CRCs otherwise.
const OPTIONAL: &[&str] = &["crc32-pclmul", "crc32_generic"];

/// The paths of [`WANTED`] and all they need, each after what it needs.
///
/// `modules_dep` is the text of the kernel's `modules.dep`: one line a module,
/// `path: needed-path needed-path ...`. `built_in` is that of `modules.builtin`, one path a line: what
/// the kernel has itself is not loaded.
///
/// # Errors
/// [`GuestError::NotInPackages`] where the kernel has no such module: Debian's cloud kernels,
/// for one, have no `rdma_rxe`.
pub(crate) fn load_order(modules_dep: &str, built_in: &str) -> Result<Vec<String>, GuestError> {
    let needs: BTreeMap<&str, Vec<&str>> = modules_dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| (path.trim(), needs.split_whitespace().collect()))
        .collect();
    let mut order = Vec::new();
    for optional in OPTIONAL {
        if let Some(path) = needs.keys().find(|path| name(path) == *optional) {
            visit(path, &needs, &mut order);
        }
    }
    let is_loaded = |wanted: &&&str| !built_in.lines().any(|path| name(path) == **wanted);
    for wanted in WANTED.iter().filter(is_loaded) {
        let path = needs.keys().find(|path| name(path) == *wanted).ok_or_else(|| {
            GuestError::NotInPackages {
                what: format!("the kernel module {wanted}"),
                needed_by: "the guest".into(),
            }
        })?;
        visit(path, &needs, &mut order);
    }
    Ok(order)
}

/// Appends `path` after everything it needs. Module dependencies have no cycles.
fn visit(path: &str, needs: &BTreeMap<&str, Vec<&str>>, order: &mut Vec<String>) {
    if order.iter().any(|placed| placed == path) {
        return;
    }
    for needed in needs.get(path).into_iter().flatten() {
        visit(needed, needs, order);
    }
    order.push(path.to_owned());
}

fn name(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split_once(".ko").map_or(file, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list in which every wanted module stands, with `extra` lines in front.
    fn modules_dep(extra: &str) -> String {
        let plain: String = WANTED
            .iter()
            .filter(|name| !extra.contains(&format!("{name}.ko:")))
            .map(|name| format!("kernel/{name}.ko:\n"))
            .collect();
        extra.to_owned() + &plain
    }

    #[test]
    fn a_module_comes_after_everything_it_needs() {
        let list = "k/rdma_rxe.ko: k/udp_tunnel.ko k/ib_core.ko\nk/udp_tunnel.ko:\n\
                    k/ib_core.ko: k/base.ko\nk/base.ko:\n";
        let order = load_order(&modules_dep(list), "").unwrap();
        let at = |name: &str| order.iter().position(|path| path.ends_with(name)).unwrap();
        assert!(at("/base.ko") < at("/ib_core.ko"));
        assert!(at("/ib_core.ko") < at("/rdma_rxe.ko"));
        assert!(at("/udp_tunnel.ko") < at("/rdma_rxe.ko"));
    }

    #[test]
    fn a_module_that_the_kernel_has_itself_is_not_loaded() {
        let without = modules_dep("").replace("kernel/virtio-rng.ko:\n", "");
        let built_in = "kernel/drivers/char/hw_random/virtio-rng.ko\n";
        let order = load_order(&without, built_in).unwrap();
        assert!(order.iter().all(|path| !path.contains("virtio-rng")), "{order:?}");
        assert!(load_order(&without, "").is_err());
    }

    #[test]
    fn a_kernel_without_rdma_rxe_is_refused_by_name() {
        let without = modules_dep("").replace("kernel/rdma_rxe.ko:\n", "");
        let refused = load_order(&without, "").unwrap_err().to_string();
        assert!(refused.contains("rdma_rxe"), "{refused}");
    }
}
