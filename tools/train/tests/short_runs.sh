#!/usr/bin/env bash
# Trains a few steps in each layout, with a checkpoint and a failure from which training continues: for a build with
# sanitizers, in which all tests would take too long. usage: short_runs.sh [LAUNCHER...] COX-TRAIN
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
model=(--devices host:2 --steps 16 --layers 2 --heads 2 --width 32 --context 16 --batch 4 --warm-up 5 --log-every 0
  --evaluate 16)

run() { # LAYOUT ARGUMENT...
  local kind
  for kind in kernel memory thread shutdown; do
    rm -rf saved
    "${command[@]}" "${model[@]}" "${@:2}" --checkpoint saved --every 5 --fault "$kind@12" --timeout 20s >out 2>&1 || {
      echo "FAILED: $1 with a failure ($kind): exit code $?"
      cat out
      exit 1
    }
    grep -qxF "failures after which training continued: 1" out || {
      echo "FAILED: $1: there was no failure ($kind)"
      exit 1
    }
    echo "$1, $kind fails in step 12: $(grep '^final loss' out)"
  done
}

command=("$@")
run replicated
run "replicated, micro-batches" --micro-batches 2
run captured --captured
run sharded --sharded
run "captured and sharded" --captured --sharded
run pipeline --pipeline --untied --micro-batches 2
run "kept in place" --keep in-place
run "kept in place, captured and sharded" --keep in-place --captured --sharded
run "kept in two copies, captured" --keep double --captured
echo "short runs: ok"
