#!/bin/busybox sh
# The first program in the machine: this host's root below a scratch disk, then the machine's own init.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
  case $module in *kvm* | *irqbypass* | *ccp*) continue ;; esac
  insmod "$module" || echo "cannot load $module"
done
mount -t ext4 /dev/vda /rw
mkdir -p /rw/upper /rw/work /rw/msb /rw/tmp
chmod 1777 /rw/tmp
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro hostroot /lower || exec sh
mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /root || exec sh
cd /root
mkdir -p proc sys dev tmp run rw share modules
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --move /dev dev
mkdir -p dev/pts dev/shm
mount -t devpts devpts dev/pts
mount -t tmpfs shm dev/shm
mount -t tmpfs run run
mount --bind /rw rw
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 share share
mount --bind /rw/tmp tmp # the overlay's is on 9p below; microVMs need user xattrs
while read -r folder; do mkdir -p "$folder" && mount --bind "/lower/$folder" "$folder"; done < share/under-tmp
cp /modules/*kvm* /modules/*irqbypass* /modules/*ccp* modules/ 2>/dev/null
umount /proc
exec switch_root /root /bin/bash /share/init.sh
