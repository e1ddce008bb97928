# Installs a package in a copy of a root and runs a line there. The mount namespace and all that is
# mounted here end with this process.
base=$1 root=$2 package=$3 files=$4 line=$5

mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/root"
layers="lowerdir=$base,upperdir=$root/upper,workdir=$root/work"
mount -t overlay -o "$layers" overlay "$root/root"
root=$root/root
cp "$package" "$root/package.deb"
cp -r "$files" "$root/check"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"

# A process that was moved by chroot may not create user namespaces.
cd "$root"
pivot_root . .
umount --lazy .
cd /
dpkg --install /package.deb >&2
rm /package.deb

# A seccomp filter like that of container engines, and the capabilities that they leave by default.
capabilities=+chown,+dac_override,+fowner,+fsetid,+kill,+mknod,+net_bind_service,+net_raw
capabilities=$capabilities,+setfcap,+setgid,+setpcap,+setuid,+sys_chroot,+audit_write
export container="/check/container setpriv --bounding-set -all,$capabilities --inh-caps -all"
sh -euc "$line"
