#!/bin/sh
# Mends a copy of the bundled U-Net: the failure, its diagnosis, the patch with its verdict, and the run after it.
# usage: demo.sh FOLDER_OF_PYTHON
set -eu

PATH="$(cd "$1" && pwd):$PATH"
here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp "$here/unet/unet.py" "$here/unet/train.py" "$work"
cd "$work"

say() { printf '\n$ %s\n' "$*"; }

say "python train.py"
if python train.py 2>error.txt; then
    echo "the example was expected to fail, but it ran" >&2
    exit 1
fi
tail -n 1 error.txt
rm error.txt

say "deinplace run train.py"
deinplace run train.py || [ $? -eq 1 ]

say 'deinplace fix . --run "python train.py"'
deinplace fix . --run "python train.py"

say "python train.py"
python train.py
