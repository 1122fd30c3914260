# Shared by the scripts of the test cluster: places, names, and waiting.
# shellcheck shell=bash
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${K8S_NODE_CACHE:-/var/tmp/sandbox-console-tests-k8s}   # built once, about 0.4 GB when kept small
STATE=${K8S_NODE_STATE:-/var/tmp/sandbox-console-tests-k8s-run}                   # one running cluster: keys, data, logs, pids
NET=${K8S_NODE_NET:-10.213.77}          # NET.1 host end of the veth pair, NET.2 the node
POD_NET=${K8S_NODE_POD_NET:-10.213.78}  # pods, bridge inside the node's network namespace
PORT=${K8S_NODE_PORT:-6443}; ETCD_PORT=${K8S_NODE_ETCD_PORT:-23790}
NODE=${K8S_NODE_NAME:-node1}
CGROUP=k8s-node-${NET//./-}             # one cgroup in each v1 hierarchy, removed by down.sh
BIN=$CACHE/bin
say() { printf '%s %s\n' "$(date +%T)" "$*"; }
die() { say "error: $*" >&2; exit 1; }
# wait_for SECONDS WHAT COMMAND...
wait_for() {
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || die "$what did not come up; see $STATE/log"
    sleep 0.2
  done
}
# private_apt DIR SUITE: an apt state of its own under DIR (the system's is not touched), from the system's own mirror
private_apt() {
  local uri key=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$1"/{lists,cache/archives,debs}/partial
  uri=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "main" && $1 !~ /security/ && $1 ~ /debian\/?$/ {print $1; exit}')
  [ -n "$uri" ] || die "no Debian mirror in apt's sources"
  : > "$1/status"
  printf '%s [signed-by=%s] %s %s main\n' deb $key "$uri" "$2" deb-src $key "$uri" "$2" > "$1/sources.list"
  cat > "$1/apt.conf" <<EOF
Dir::Etc::sourcelist "$1/sources.list"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
Dir::State "$1"; Dir::State::lists "$1/lists"; Dir::State::status "$1/status"; Dir::Cache "$1/cache";
APT::Sandbox::User "root"; APT::Install-Recommends "false"; Acquire::Languages "none";
EOF
  export APT_CONFIG=$1/apt.conf
  apt-get -qq update
}
