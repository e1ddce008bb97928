#!/bin/sh
# Installs roce on a CI runner, and lets it do there what it needs. The steps of a job share what this
# writes to GITHUB_PATH, GITHUB_ENV and GITHUB_OUTPUT; without those it prints the lines.
#
# Its settings are the inputs of action.yml, as variables ROCE_SETUP_*.
set -eu

version=${ROCE_SETUP_VERSION:-0.1.0}
artifact=${ROCE_SETUP_ARTIFACT:-}
device_name=${ROCE_SETUP_DEVICE_NAME:-roce0}
user_namespaces=${ROCE_SETUP_USER_NAMESPACES:-true}
memlock=${ROCE_SETUP_MEMLOCK:-true}
repository=${ROCE_SETUP_REPOSITORY:-}

fail() {
    echo "::error::$*"
    exit 1
}

warn() {
    echo "::warning::$*"
}

# Adds a line to a file of the runner.
tell() {
    if [ -n "$1" ]; then
        printf '%s\n' "$2" >>"$1"
    else
        printf '%s\n' "$2"
    fi
}

case "$user_namespaces/$memlock" in
    true/true | true/false | false/true | false/false) ;;
    *) fail "user-namespaces is '$user_namespaces' and memlock is '$memlock': write true or false" ;;
esac
case $device_name in
    '' | *[!A-Za-z0-9._-]* | .*) fail "device-name is '$device_name': write letters, digits, '-', '_' and '.', such as rxe0" ;;
esac

# A runner's user has sudo without a password as a rule; a job in a container is root.
if [ "$(id -u)" = 0 ]; then
    rights=root
    as_root() { "$@"; }
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    rights=sudo
    as_root() { sudo -n "$@"; }
else
    rights=none
    as_root() { return 1; }
fi

case $(uname -s)/$(uname -m) in
    Linux/x86_64) architecture=x86_64 ;;
    Linux/aarch64) architecture=aarch64 ;;
    *) fail "roce runs on Linux on x86_64 and aarch64, and this is $(uname -s) on $(uname -m)" ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fetch() {
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --retry 5 --output "$2" "$1"
    elif command -v wget >/dev/null; then
        wget --quiet --tries 5 --output-document "$2" "$1"
    else
        fail "neither curl nor wget is installed, so no release can be fetched; install one in a step before"
    fi
}

# Fetches the release and compares it with its checksum.
download() {
    [ -n "$repository" ] || fail "there is no release to fetch outside of a workflow; set ROCE_SETUP_ARTIFACT"
    release="${GITHUB_SERVER_URL:-}/$repository/releases/download/v$version"
    name="roce-$version-$architecture-unknown-linux-gnu.tar.gz"
    fetch "$release/$name" "$scratch/$name" || fail "$release/$name was not fetched: is $version a release?"
    fetch "$release/SHA256SUMS" "$scratch/SHA256SUMS" || fail "$release/SHA256SUMS was not fetched"
    (cd "$scratch" && grep "[ *]$name\$" SHA256SUMS >expected && sha256sum --check --quiet expected) ||
        fail "$name does not have the checksum of its release"
    artifact=$scratch/$name
}

[ -n "$artifact" ] || download

# Where `sudo roce` finds it too, if that is permitted.
if [ $rights = none ]; then
    prefix=${RUNNER_TOOL_CACHE:-$HOME/.local/share}/roce
    put() { "$@"; }
else
    prefix=/usr/local
    put() { as_root "$@"; }
fi

case $artifact in
    *.deb)
        [ $rights != none ] || fail "$artifact needs root or sudo; use the tarball"
        as_root dpkg --install "$artifact"
        prefix=/usr
        ;;
    *.tar.gz | *.tgz)
        mkdir "$scratch/unpacked"
        tar -xzf "$artifact" -C "$scratch/unpacked" || fail "$artifact is no tarball of roce"
        ;;
    *)
        [ -x "$artifact/bin/roce" ] || fail "there is no $artifact/bin/roce; give a tarball, a Debian package, or a folder with bin and lib"
        ln -s "$(cd "$artifact" && pwd)" "$scratch/unpacked"
        ;;
esac
if [ "$prefix" != /usr ]; then
    program=$(find "$scratch/unpacked/" -path '*/bin/roce' -type f | head -n 1)
    [ -n "$program" ] || fail "$artifact has no bin/roce"
    from=$(dirname "$(dirname "$program")")
    put mkdir -p "$prefix"
    for folder in bin lib share; do
        [ ! -d "$from/$folder" ] || put cp -R "$from/$folder" "$prefix/"
    done
fi
roce=$prefix/bin/roce
installed=$("$roce" --version) || fail "$roce does not run on this system: it needs glibc 2.28 or later"
echo "$installed in $prefix"

# Writes a switch of the kernel that has another value.
switch() {
    file=/proc/sys/$(echo "$1" | tr . /)
    [ -e "$file" ] && [ "$(cat "$file")" = "$2" ] || return 0
    if as_root sh -c "echo $3 >$file" 2>/dev/null; then
        echo "$1 was $2 and is $3 now"
    else
        warn "$1 is $2 and may not be changed here: 'roce run --local' needs root on this runner"
    fi
}

if [ "$user_namespaces" = true ]; then
    switch kernel.apparmor_restrict_unprivileged_userns 1 0
    switch kernel.unprivileged_userns_clone 0 1
    switch user.max_user_namespaces 0 15000
fi

# Packets on the runner's own interfaces; root needs no capability.
if [ $rights = sudo ]; then
    setcap=$(PATH=$PATH:/usr/sbin:/sbin command -v setcap || true)
    if [ -n "$setcap" ] && as_root "$setcap" cap_net_raw+ep "$roce"; then
        echo "roce may send packets on this runner's interfaces (cap_net_raw)"
    else
        warn "setcap is missing or failed: without --local write 'sudo roce run'"
    fi
fi

# Later steps are children of the runner's worker, an ancestor of this shell.
lift_memlock() {
    command -v prlimit >/dev/null || return 1
    process=$$
    while [ "$process" -gt 1 ]; do
        as_root prlimit --pid "$process" --memlock=unlimited:unlimited 2>/dev/null || return 1
        process=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$process/status")
    done
}
if [ "$memlock" = true ] && ! lift_memlock; then
    warn "the limit of locked memory stays $(ulimit -l) KiB: programs that lock their memory may fail"
fi

[ "$prefix" = /usr ] || [ "$prefix" = /usr/local ] || tell "${GITHUB_PATH:-}" "$prefix/bin"
tell "${GITHUB_ENV:-}" "ROCE_DEVICES=$device_name=*"
variables=$("$roce" env)
tell "${GITHUB_ENV:-}" "$variables"
library=$(echo "$variables" | sed -n 's/^NCCL_IBVERBS_LIB=//p')
tell "${GITHUB_OUTPUT:-}" "version=${installed#roce }"
tell "${GITHUB_OUTPUT:-}" "library=$library"

echo 'Interfaces of this runner; programs under `roce run` see a device for each of them:'
"$roce" devices || true
cards=$(ls /sys/class/infiniband 2>/dev/null | tr '\n' ' ')
[ -z "$cards" ] || echo "This runner has RDMA devices of its own: $cards. Programs under \`roce run\` do not see them."

# Shows that packets pass; without namespaces only interfaces of the runner are left.
if "$roce" pingpong --local -n 100 >"$scratch/pingpong" 2>&1; then
    echo 'Private hosts work: `roce run --local 2 -- PROGRAM`'
else
    cat "$scratch/pingpong"
    warn "private hosts do not work for this user: leave out --local, or write 'sudo roce run --local'"
fi
