#!/usr/bin/env bash
# train.sh SECONDS OUT [TRY]   trains in this folder, by the clock: loading and compiling count too
# Goes on from trunk.pt. With TRY, it first trains for so many seconds from trunk.pt and for as many from random weights, and goes on
# with the one whose cross-entropy is lower on 8,192 positions, FEN alone and with the game together. OUT gets trunk.pt, every minute, and the logs.
set -euo pipefail
total=$1 out=$(realpath "$2") try=${3:-0}
cd "$(dirname "$0")"
site=$(mktemp -d)
python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$site" wheels/*.whl
export PYTHONPATH=$PWD/code:$site PYTHONUNBUFFERED=1
# Gathering processes hand batches over in shared memory, 200 MB of it; where that is small, the teacher's thread gathers.
[ "$(df --output=avail -k /dev/shm | tail -n 1)" -gt 1000000 ] || sed -i 's/^gatherers.*/gatherers = 0/' ./*.toml
rm -rf trunk random run
ln -s "$out" run
if [ "$try" = 0 ]; then
  cp trunk.pt run/
else
  mkdir trunk && cp trunk.pt trunk/
  for start in trunk random; do
    python3 -m training.train $start.toml --seconds "$try"
    cp $start/log.jsonl run/$start.jsonl
  done
  best=$(python3 -m training.validation run.toml trunk random | tee run/compared.md | sed -n 's/^lowest: //p')
  echo "goes on from $best"
  cp $best/checkpoint.pt run/
fi
python3 -m training.train run.toml --anneal-seconds $((total - SECONDS - 45))
rm -f run/checkpoint*.pt # with the optimizers' state, which begins anew
tail -n 1 run/log.jsonl
