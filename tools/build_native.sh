#!/usr/bin/env bash
# Compiles the request path anew when a source is newer than its compiled form. Usage: tools/build_native.sh PYTHON.
# BARNABAS_BUILD=pure, or no C compiler: nothing is done, the broker runs as plain Python.
set -euo pipefail
python=$1

if [ "${BARNABAS_BUILD:-}" = pure ] || BARNABAS_NATIVE=1 "$python" -c 'from barnabas.native import is_native; raise SystemExit(not is_native())'; then
  exit 0
fi
if ! command -v cc >/dev/null 2>&1; then
  echo "no C compiler: the request path runs as plain Python, at about two thirds of its speed"
  exit 0
fi
echo "compiling the request path (about a minute)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --editable . >"$log" 2>&1 || true
if ! BARNABAS_NATIVE=1 "$python" -c 'from barnabas.native import is_native; raise SystemExit(not is_native())'; then
  tail -n 5 "$log" >&2
  echo "compiling failed: the request path runs as plain Python, at about two thirds of its speed"
fi
