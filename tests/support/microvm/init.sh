# The machine's init: loopback, the console's address, /dev/kvm, then the agent for ever.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 MSB_HOME=/rw/msb
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr
hostname microvm
busybox ip link set lo up
busybox ip link set eth0 up
busybox ip addr add 10.0.2.15/24 dev eth0
busybox ip route add default via 10.0.2.2
for module in /modules/*; do busybox insmod "$module" 2>/dev/null; done
[ -c /dev/kvm ] || echo "MACHINE no /dev/kvm"
mkdir -p /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "MACHINE up $(cut -d' ' -f1 /proc/uptime)"
while :; do /share/python -I -S /share/agent.py /share/token; sleep 1; done
