# Sourced by the scripts beside it. Afterwards the working directory is the root of the repository, whatever it was, and
# need, say and stop are there.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

say() { echo "$(basename "$0"): $*"; }

stop() { say "$*" >&2; exit 1; }

# need COMMAND PACKAGE: installs the Debian package if the command is not there, and says so.
need() {
  command -v "$1" >/dev/null 2>&1 || [ -x "/bin/$1" ] || [ -x "/usr/sbin/$1" ] && return 0
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  command -v apt-get >/dev/null 2>&1 || { say "$1 is missing: install it (Debian's package is $2)" >&2; return 1; }
  [ -z "$sudo" ] || command -v sudo >/dev/null 2>&1 || { say "$1 is missing: as root, apt-get install $2" >&2; return 1; }
  say "$1 is missing: installing the package $2"
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$2" >/dev/null 2>&1 ||
    { $sudo apt-get update -q >/dev/null &&
      $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$2" >/dev/null; } ||
    { say "installing $2 did not work" >&2; return 1; }
}

# need_packages FILE: installs the Debian packages that FILE names, one a line, and says so. Another node than Debian's will do.
need_packages() {
  local p missing=() sudo=
  command -v dpkg-query >/dev/null 2>&1 || { say "this is no Debian: programs that are missing are not tested"; return 0; }
  while read -r p; do
    [ "$p" = nodejs ] && command -v node >/dev/null 2>&1 && continue
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done <"$1"
  [ ${#missing[@]} -gt 0 ] || return 0
  [ "$(id -u)" = 0 ] || sudo=sudo
  say "installing ${missing[*]}"
  $sudo apt-get update -q >/dev/null &&
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null ||
    { say "installing them did not work" >&2; return 1; }
}

# need_go: the go command, which Debian's package is too old for. Its usual place is tried too.
need_go() {
  command -v go >/dev/null 2>&1 || PATH=$PATH:/usr/local/go/bin
  command -v go >/dev/null 2>&1 || stop "the go command is missing: https://go.dev/doc/install"
}

# need_fuse: what mounting takes. Root mounts without fusermount3, so there a failed installation is no reason to stop.
need_fuse() {
  [ -e /dev/fuse ] || stop "there is no /dev/fuse: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
  need fusermount3 fuse3 || [ "$(id -u)" = 0 ] || exit 1
  [ -r /dev/fuse ] && [ -w /dev/fuse ] || stop "/dev/fuse is closed to this user: as root, chmod 666 /dev/fuse"
}
