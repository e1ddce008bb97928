# Runs a line in a copy of a root that has a folder of files in /check. The mount namespace and all that is
# mounted here end with this process.
base=$1 root=$2 files=$3 line=$4

mount -t tmpfs tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/root"
layers="lowerdir=$base,upperdir=$root/upper,workdir=$root/work"
mount -t overlay -o "$layers" overlay "$root/root"
root=$root/root
cp -r "$files" "$root/check"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"

# A process that was moved by chroot may not create user namespaces.
cd "$root"
pivot_root . .
umount --lazy .
cd /
sh -euc "$line"
