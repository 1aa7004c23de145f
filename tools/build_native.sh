#!/usr/bin/env bash
# Compiles the request path and the record kernel anew when a source is newer than its compiled form. Usage: tools/build_native.sh PYTHON.
# BARNABAS_BUILD=pure, or no C compiler: nothing is done, everything runs as plain Python.
set -euo pipefail
python=$1

is_native() {
  BARNABAS_NATIVE=1 "$python" -c "from barnabas.native import $1; raise SystemExit(not $1())"
}

if [ "${BARNABAS_BUILD:-}" = pure ] || { is_native is_native && is_native is_kernel_native && is_native is_codec_native; }; then
  exit 0
fi
if ! command -v cc >/dev/null 2>&1; then
  echo "no C compiler: everything runs as plain Python; requests take half as long again, work on records many times as long"
  exit 0
fi
if is_native is_native; then
  export BARNABAS_BUILD=kernel
  echo "compiling the record kernel and the codec (some seconds)"
else
  echo "compiling the request path, the record kernel and the codec (about three minutes)"
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --editable . >"$log" 2>&1 || true
for part in is_native is_kernel_native is_codec_native; do
  if ! is_native "$part"; then
    tail -n 5 "$log" >&2
    echo "compiling failed ($part): that part runs as plain Python, which is slower"
  fi
done
