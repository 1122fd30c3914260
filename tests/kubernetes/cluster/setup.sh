#!/usr/bin/env bash
# Builds a Kubernetes control plane and kubelet from Debian's source package, once, into $K8S_NODE_CACHE.
# Needs apt-get and dpkg-deb (as any user: packages are unpacked, never installed) and python3. apt checks what it gets
# against Debian's signed index.
. "$(dirname "$0")/common.sh"
SUITE=bookworm          # the last suite whose source package still holds the server and vendor/
COMMANDS="kube-apiserver kubelet kube-controller-manager kube-scheduler"
APT=$CACHE/apt ROOT=$CACHE/root SRC=$CACHE/build
STAMP=$CACHE/stamp-1
# What is cached is checked against the sums that were written when it was built.
if [ -e "$STAMP" ]; then
  (cd "$CACHE" && sha256sum --quiet -c "$STAMP") || die "the cache in $CACHE was changed: remove it to build it again"
  say "already built in $CACHE"; exit 0
fi
[ "$(dpkg --print-architecture)" = amd64 ] || die "tried on amd64 only"
[ "$(df --output=avail -k "$(dirname "$CACHE")" 2>/dev/null | tail -1 || echo 9999999)" -gt 4000000 ] || die "needs 4 GB of free disk while building"
mkdir -p "$ROOT" "$SRC" "$BIN"

say "package lists"
private_apt "$APT" $SUITE

say "packages, unpacked without installing them"
cd "$APT/debs"
apt-get -qq download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev \
  kubernetes-client etcd-server containerd runc containernetworking-plugins busybox-static
for deb in ./*.deb; do dpkg-deb -x "$deb" "$ROOT"; done
apt-get -qq source --download-only kubernetes
tree=$SRC/src/k8s.io/kubernetes
if [ ! -e "$SRC/unpacked" ]; then
  rm -rf "$tree"; mkdir -p "$tree"
  tar xf kubernetes_*.orig.tar.* -C "$tree" --strip-components=1
  # The vendored reflect2 1.0.1 breaks on maps from Go 1.18 on; Debian has 1.0.2 as a package.
  r=$tree/vendor/github.com/modern-go/reflect2
  rm -f "$r"/*.go "$r"/*.s
  cp "$ROOT"/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$r/"
  # Two vendored validators compare reflect.Values; since Go 1.18 that takes "" for null and refuses it.
  sed -i 's/data == nil || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))/data == nil/' \
    "$tree"/vendor/{github.com/go-openapi,k8s.io/kube-openapi/pkg/validation}/validate/type.go
  touch "$SRC/unpacked"
fi
version=v$(ls kubernetes_*.dsc | sed -E 's/.*really([0-9.]+)-.*/\1/; s/kubernetes_([0-9.]+).*/\1/')

say "building $version (a few minutes on two free cores)"
export GO111MODULE=off GOPATH=$SRC GOCACHE=$CACHE/gocache CGO_ENABLED=0 GOFLAGS='' GOROOT=$ROOT/usr/lib/go-1.19 PATH=$ROOT/usr/lib/go-1.19/bin:$PATH
cd "$tree"
if [ ! -e pkg/generated/openapi/zz_generated.openapi.go ]; then   # not in the tarball; upstream's make writes it
  go build -o "$SRC/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  dirs=$(grep -Rl --include='*.go' -e '+k8s:openapi-gen=' vendor/k8s.io pkg |
    grep -v -e zz_generated -e code-generator -e sample- -e k8s.io/kube-openapi -e apis/example |
    xargs -n1 dirname | LC_ALL=C sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
  "$SRC/openapi-gen" --logtostderr -i "$dirs" -p k8s.io/kubernetes/pkg/generated/openapi \
    -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt -r "$SRC/violations.txt"
fi
p=k8s.io/kubernetes/vendor/k8s.io
v="-X $p/component-base/version.gitVersion=$version -X $p/client-go/pkg/version.gitVersion=$version"
v="$v -X $p/component-base/version.gitMajor=1 -X $p/component-base/version.gitMinor=$(echo "$version" | cut -d. -f2)"
for c in $COMMANDS; do
  # providerless: leaves out the cloud vendors' SDKs
  go build -tags providerless -ldflags "-s -w $v" -o "$BIN/" "k8s.io/kubernetes/cmd/$c"
  say "  $c $(du -h "$BIN/$c" | cut -f1)"
done
cp "$ROOT"/usr/bin/{kubectl,etcd,containerd,containerd-shim-runc-v2,ctr} "$BIN/"
cp "$ROOT/usr/sbin/runc" "$BIN/"
mkdir -p "$CACHE/cni"; cp "$ROOT"/usr/lib/cni/{bridge,host-local,loopback} "$CACHE/cni/"
python3 "$HERE/mkimage.py" "$ROOT/bin/busybox" "$CACHE/images.tar"
"$BIN/kube-apiserver" --version; "$BIN/kubelet" --version; "$BIN/etcd" --version | sed -n 1p
(cd "$CACHE" && sha256sum bin/* cni/* images.tar) > "$STAMP.part" && mv "$STAMP.part" "$STAMP"
if [ -z "${K8S_NODE_KEEP_BUILD:-}" ]; then rm -rf "$ROOT" "$SRC" "$CACHE/gocache" "$APT"; fi
say "done: $(du -sh "$CACHE" | cut -f1) in $CACHE"
