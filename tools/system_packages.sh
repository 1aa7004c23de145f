#!/usr/bin/env bash
# Makes sure that the named programs are there: installs what is missing through apt-get when that needs no password,
# otherwise says in one line what to install. Usage: tools/system_packages.sh PROGRAM...   (java, mvn, kcat, cc, python3-venv)
set -euo pipefail

# python3-venv is no program: Debian cuts the modules venv and ensurepip out of python3.
have() {
  case "$1" in
    python3-venv) python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}

package_of() {
  case "$1" in
    java) echo "default-jre-headless" ;;
    mvn) echo "maven" ;;
    kcat) echo "kcat" ;;
    cc) echo "gcc libc6-dev" ;;
    python3-venv) echo "python3 python3-venv" ;;
    *) echo "$1" ;;
  esac
}

missing=()
packages=()
for program in "$@"; do
  if ! have "$program"; then
    missing+=("$program")
    read -r -a names <<<"$(package_of "$program")"
    packages+=("${names[@]}")
  fi
done
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    as_root=(false)
  fi
fi

if command -v apt-get >/dev/null 2>&1 && [ "${as_root[*]:-}" != "false" ]; then
  echo "installing ${packages[*]} (for: ${missing[*]})"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${packages[@]}"; } >"$log" 2>&1; then
    exit 0
  fi
  tail -n 5 "$log" >&2
fi
echo "please install: ${missing[*]} (Debian and Ubuntu: sudo apt-get install ${packages[*]})" >&2
exit 1
