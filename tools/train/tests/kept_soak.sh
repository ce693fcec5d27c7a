#!/usr/bin/env bash
# Trains on two host devices with --keep under `cox run`, which starts the program again after each kill: one layout and
# mode after the other, until that many runs were killed. In every second round there are other failures, too. The losses
# and parameters must be those of an undisturbed run, bit by bit. With --processes the devices belong to so many processes
# of a world, one each, which kill themselves at random; the undisturbed run is one process with all devices.
# With --gpus on that many GPUs, captured in most rounds: kills, or with --fault gpu GPU faults until there were that many
# of each kind (traps, invalid addresses, failed assertions), at random times on a stream of their own.
# usage: kept_soak.sh COX-TRAIN COX [--processes 2|4] [KILLS]
#        kept_soak.sh COX-TRAIN COX --gpus 1|2 [--fault gpu] [COUNT]
set -euo pipefail

program=$1
cox=$2
shift 2
processes=1
if [[ ${1:-} == --processes ]]; then
  processes=$2
  shift 2
fi
gpus=0
faults=(kill)
if [[ ${1:-} == --gpus ]]; then
  gpus=$2
  shift 2
  if [[ ${1:-} == --fault ]]; then
    [[ $2 == gpu ]] || exit 2
    faults=(trap address assert)
    shift 2
  fi
fi
wanted=${1:-500}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

steps=300
devices=$((processes > 1 ? processes : 2)) # a pipeline has a layer for each
world=()
if ((processes > 1)); then world=(--processes "$processes" --grace 300ms); fi
model=(--steps "$steps" --layers "$devices" --heads 2 --width 64 --context 32 --batch 4 --log-every 0)
layouts=("" "--captured" "--sharded" "--captured --sharded" "--pipeline --untied --micro-batches 2"
  "--captured --pipeline --untied --micro-batches 2" "--micro-batches 2")
kind=host
every=10
if ((gpus > 0)); then
  kind=cuda
  devices=$gpus
  every=300
  # A step takes about a millisecond, and opening GPUs and communicators a second.
  steps=4000
  model=(--steps "$steps" --layers 2 --heads 2 --width 64 --context 32 --batch 4 --log-every 0)
  layouts=("--captured" "--captured --sharded" "" "--captured --type bf16" "--captured --pipeline --untied --micro-batches 2")
  if ((gpus == 1)); then layouts=("--captured" "" "--captured --type bf16"); fi
fi
parameters() { grep -E '^(replicas|stage)' "$1" | sort -u; }

fail() {
  echo "FAILED: $*"
  tail -n 40 disturbed.out
  exit 1
}
# Adds up how the starts in disturbed.out have found kept memory: "whole 12, torn 1, ".
declare -A starts=()
found() { sed -n 's/^kept memory: \([a-z]*\).*/\1/p' disturbed.out; }
add_starts() {
  local kind count text=""
  while read -r count kind; do
    starts[$kind]=$((${starts[$kind]:-0} + count))
    text+="$kind $count, "
  done < <(found | sort | uniq -c)
  echo "$text"
}

# How often each fault has struck, and how many processes have lost their GPUs.
declare -A patterns=([kill]='was ended by signal 9' [trap]='^injected .*: a trap' [address]='^injected .*: an invalid address'
  [assert]='^injected .*: a failed assertion' [lost]='ended with code 86')
declare -A struck=()
count_round() {
  local name
  for name in "${!patterns[@]}"; do
    struck[$name]=$((${struck[$name]:-0} + $(grep -c "${patterns[$name]}" disturbed.out || true)))
  done
}
complete() {
  local name
  for name in "${faults[@]}"; do ((${struck[$name]:-0} >= wanted)) || return 1; done
}
struck_text() {
  local name text=""
  for name in "${faults[@]}"; do text+="$name ${struck[$name]:-0}, "; done
  if ((gpus > 0)); then text+="exit code 86 ${struck[lost]:-0}, "; fi
  echo "${text%, }"
}

rounds=0
begin=$SECONDS
while ! complete; do
  number=$((rounds % ${#layouts[@]}))
  read -ra words <<<"${layouts[$number]}"
  mode=in-place
  if ((rounds / ${#layouts[@]} % 2 == 1)); then mode=double; fi
  fault=kill@200
  timeout=300ms
  if ((rounds % 2 == 1)); then fault=random@12; fi
  if ((processes > 1)); then # one of them is missing for as long as it takes to start
    fault=kill@$((300 * processes))
    timeout=20s
  fi
  if ((gpus > 0)); then
    fault=${faults[rounds % ${#faults[@]}]}@2500
    timeout=20s
  fi
  if [[ ! -e whole.$number.losses ]]; then
    "$program" "${model[@]}" "${words[@]}" --devices "$kind:$devices" --losses "whole.$number.losses" \
      >"whole.$number.out" 2>&1 ||
      fail "the undisturbed run ended with exit code $?"
  fi
  rm -rf saved disturbed.losses
  "$cox" run "${world[@]}" --restarts 100000 --backoff 1ms --backoff-max 1ms --on signal -- "$program" "${model[@]}" \
    "${words[@]}" --devices "$kind:$((devices / processes))" --keep "$mode" --losses disturbed.losses --checkpoint saved \
    --every "$every" --fault "$fault" --timeout "$timeout" --restarts 100000 >disturbed.out 2>&1 || fail "the disturbed run ended with exit code $?"
  what="${layouts[$number]:---replicated} --keep $mode --fault $fault"
  cmp "whole.$number.losses" disturbed.losses || fail "$what: the losses differ"
  [[ $(parameters "whole.$number.out") == "$(parameters disturbed.out)" ]] || fail "$what: the parameters differ"
  if [[ $mode == double && $(found) == *whole*torn* ]]; then fail "$what: two copies were torn after a commit"; fi
  count_round
  rounds=$((rounds + 1))
  add_starts >round
  echo "round $rounds, $what: so far $(struck_text); starts: $(<round)losses and parameters equal; $((SECONDS - begin)) s"
done
text=""
for kind in "${!starts[@]}"; do text+="$kind ${starts[$kind]}, "; done
echo "kept soak: $processes processes, $rounds rounds of $steps steps, $(struck_text), starts: ${text}every loss equal to the bit"
