#!/usr/bin/env bash
# Makes the virtual environment and installs the package with everything that tests and checks need.
# Usage: tools/setup_venv.sh PYTHON VENV. Without a network it is content with an environment that is already complete.
set -euo pipefail
python=$1
venv=$2

if [ ! -x "$venv/bin/python" ]; then
  if [ -z "$python" ]; then
    "$(dirname "$0")/system_packages.sh" python3-venv
    python=python3
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
      echo "please install Python 3.11 or newer; $("$python" --version) is what the system has" >&2
      exit 1
    }
  fi
  echo "making $venv with $($python --version)"
  "$python" -m venv "$venv"
fi

echo "installing barnabas and its development tools into $venv"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[dev]" >"$log" 2>&1; then
  exit 0
fi
if "$venv/bin/python" tools/check_installed.py >/dev/null 2>&1; then
  echo "no package index could be reached; the environment is complete already, going on with it"
  exit 0
fi
cat "$log" >&2
exit 1
