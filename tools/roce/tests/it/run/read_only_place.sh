# Runs a command where nothing outside of /dev, /proc and /sys can be written to. /dev/shm has the options of a
# container's; with --without-shm it cannot be written to, either. In a mount namespace of its own.
set -e
mount --make-rprivate /
shm=rw
if [ "$1" = --without-shm ]; then
    shm=ro
    shift
fi
mount -t tmpfs -o "$shm,nosuid,nodev,noexec,mode=1777" shm /dev/shm
awk '{ sub(/^rw/, "ro", $6); print $5, $6 }' /proc/self/mountinfo | sort -ru | while read -r folder options; do
    case $folder in
    /dev | /dev/* | /proc | /proc/* | /sys | /sys/*) ;;
    *) mount -o "remount,bind,$options" "$folder" ;;
    esac
done
exec "$@"
