#!/usr/bin/env bash
# Trains on two host devices with random faults under `cox run`, one layout after the other, until the time is up. The
# losses and parameters must be those of an undisturbed run, bit by bit.
# usage: soak.sh COX-TRAIN COX [MINUTES]
set -euo pipefail

program=$1
cox=$2
minutes=${3:-60}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() {
  echo "FAILED: $*"
  tail -n 40 "$layout"/*.out
  exit 1
}

model=(--devices host:2 --steps 1000 --layers 2 --heads 2 --width 64 --context 32 --batch 4 --log-every 0)
layouts=(replicated captured sharded pipeline)
declare -A arguments=([replicated]="" [captured]="--captured" [sharded]="--sharded"
  [pipeline]="--pipeline --untied --micro-batches 2")
parameters() { grep -E '^(replicas|stage)' "$1"; }

faults=0
rounds=0
begin=$SECONDS

while [[ $((SECONDS - begin)) -lt $((minutes * 60)) ]]; do
  layout=${layouts[$((rounds % ${#layouts[@]}))]}
  read -ra words <<<"${arguments[$layout]}"
  mkdir -p "$layout"
  if [[ ! -e $layout/whole.losses ]]; then
    "$program" "${model[@]}" "${words[@]}" --losses "$layout/whole.losses" >"$layout/whole.out" 2>&1 ||
      fail "the undisturbed run ended with exit code $?"
  fi
  rm -rf "$layout/saved" "$layout/disturbed.losses"
  "$cox" run --restarts 100000 --backoff 1ms --backoff-max 1ms --on signal -- "$program" "${model[@]}" \
    "${words[@]}" --losses "$layout/disturbed.losses" --checkpoint "$layout/saved" --every 10 --resume \
    --fault random@25 --timeout 300ms --restarts 100000 >"$layout/disturbed.out" 2>&1 ||
    fail "$layout: the disturbed run ended with exit code $?"
  cmp "$layout/whole.losses" "$layout/disturbed.losses" || fail "$layout: the losses differ"
  [[ $(parameters "$layout/whole.out") == "$(parameters "$layout/disturbed.out")" ]] ||
    fail "$layout: the parameters differ"
  found=$(($(grep -c '^continues after step' "$layout/disturbed.out") - 1)) # the first time is the start
  faults=$((faults + found))
  rounds=$((rounds + 1))
  echo "round $rounds, $layout: 1000 steps, continued $found times, losses and parameters equal; $((SECONDS - begin)) s"
done

[[ $faults -gt 0 ]] || fail "there was no fault"
echo "soak: $rounds rounds of 1000 steps, continued $faults times, every loss equal to the bit"
