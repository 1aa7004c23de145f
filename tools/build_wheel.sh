#!/usr/bin/env bash
# Builds the wheel that users get and tries it in an environment of its own, without a compiler. Usage: tools/build_wheel.sh PYTHON.
# What all platforms get is built by cibuildwheel with the settings in pyproject.toml; this is one of those wheels.
set -euo pipefail
python=$1
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "building the wheel (about three minutes on two cores)"
# From a copy: what a checkout has compiled must not get into the wheel, nor the other way round.
git -C "$here" ls-files -z | (cd "$here" && tar --null --files-from=- -cf -) | tar -xf - -C "$work"
"$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/dist" "$work"
wheel=$(ls "$work"/dist/barnabas-*.whl)
mkdir -p "$here/dist"
cp "$wheel" "$here/dist/"
echo "built dist/$(basename "$wheel"), $(du -h "$wheel" | cut -f1)"

echo "installing it where there is no compiler"
"$python" -m venv "$work/venv"
start=$(date +%s.%N)
CC=/bin/false "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
echo "installed with its dependencies in $(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $start }") s"
cd "$work/venv"
"$work/venv/bin/python" "$here/tools/try_wheel.py"
