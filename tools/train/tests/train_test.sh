#!/usr/bin/env bash
# Runs cox-train and checks what it did. usage: train_test.sh PROGRAM KIND:COUNT CASE [ARGUMENT...]
# KIND:COUNT: the devices that may be used, such as host:4 or cuda:2; cuda:all: every GPU. A case with more than one
# device is skipped if there is only one, or none. Runs are compared by the file of --losses, which has each loss exactly to the bit, and by the
# checksums of the parameters.
set -euo pipefail

program=$1
kind=${2%%:*}
available=${2##*:}
scenario=$3
shift 3
if [[ $available == all ]]; then
  available=$({ nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true)
  if ((available == 0)); then
    echo "skipped: needs a GPU"
    exit 0
  fi
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

small=(--devices "$kind:$((available < 2 ? 1 : 2))" --steps 30 --layers 2 --heads 2 --width 32 --context 16 --batch 4 --warm-up 5 --log-every 0 --evaluate 16)

fail() {
  echo "FAILED: $*"
  for file in *.out; do [[ -f $file ]] && sed "s/^/$file: /" "$file"; done
  exit 1
}

# run NAME ARGUMENT...: expects success; writes NAME.out and NAME.losses.
run() {
  "$program" "${small[@]}" --losses "$1.losses" "${@:2}" >"$1.out" 2>&1 || fail "$1 ended with exit code $?"
}
# run_code CODE NAME ARGUMENT...: expects this exit code.
run_code() {
  local code=0
  "$program" "${small[@]}" "${@:3}" >"$2.out" 2>&1 || code=$?
  [[ $code == "$1" ]] || fail "$2 ended with exit code $code instead of $1"
}
has() { # NAME TEXT
  grep -qF -- "$2" "$1.out" || fail "$1 does not print: $2"
}
parameters() { grep -E '^(replicas|stage)' "$1.out" | sort -u; } # a process that is killed may have printed them already
same() { # NAME NAME: equal to the bit
  [[ $(wc -l <"$1.losses") == 30 ]] || fail "$1 has not 30 losses"
  cmp -s "$1.losses" "$2.losses" || fail "the losses of $1 and $2 differ"
  [[ $(parameters "$1") == "$(parameters "$2")" ]] || fail "the parameters of $1 and $2 differ"
}
close_to() { # NAME NAME [TOLERANCE]: losses differ by at most TOLERANCE
  [[ $(wc -l <"$1.losses") == 30 ]] || fail "$1 has not 30 losses"
  paste "$1.losses" "$2.losses" | awk -v most="${3:-2e-5}" '
    { d = $2 - $5; if (d < 0) d = -d; if (d > worst) worst = d }
    END { printf "largest difference of losses: %g of %g\n", worst, most; exit worst > most }
  ' || fail "the losses of $1 and $2 are not close"
}
needs() { # COUNT: ends the case if there are fewer devices
  if ((available < $1)); then
    echo "skipped: needs $1 devices"
    exit 0
  fi
}
# How each start of the program has found kept memory, and the step after which it continued: "empty:0 whole:12".
starts() { # NAME
  awk '
    /^kept memory: / { sub(/[:,]$/, "", $3); printf "%s%s", n++ ? " " : "", $3 }
    /^continues after step / { printf ":%s", $4 }
  ' "$1.out"
}
starts_are() { # NAME STARTS
  [[ $(starts "$1") == "$2" ]] || fail "$1 has started as \"$(starts "$1")\" instead of \"$2\""
}
continues_are() { # NAME STEPS: the steps after which the program has continued
  [[ $(sed -n 's/^continues after step //p' "$1.out" | xargs) == "$2" ]] || fail "$1 does not continue after $2"
}
lacks() { # NAME TEXT
  if grep -qF -- "$2" "$1.out"; then fail "$1 prints: $2"; fi
}
# strikes RUNS FAULT: writes strikes.sh, which runs a program with that fault in the first RUNS runs under `cox run`.
strikes() {
  cat >strikes.sh <<END
if ((COX_RESTART < $1)); then exec "\$@" --fault $2; fi
exec "\$@"
END
}
# supervised NAME COX ARGUMENT...: a run under `cox run`, which starts the program again after a signal, or when a GPU is lost.
supervised() {
  "$2" run --restarts 100000 --backoff 1ms --backoff-max 1ms --on signal -- bash strikes.sh "$program" "${small[@]}" \
    --losses "$1.losses" "${@:3}" >"$1.out" 2>&1 || fail "$1 ended with exit code $?"
}
# world NAME PROCESSES DEVICES COX ARGUMENT...: a run of so many processes with so many devices each, as one world. It is
# started again after a signal.
world() {
  "$4" run --processes "$2" --restarts 100000 --backoff 1ms --backoff-max 1ms --grace "${grace:-10s}" --on signal -- \
    bash strikes.sh "$program" "${small[@]}" --losses "$1.losses" "${@:5}" --devices "$kind:$3" >"$1.out" 2>&1 ||
    fail "$1 ended with exit code $?"
}
damage() { # FILE: changes one byte in its middle
  local middle=$(($(stat -c %s "$1") / 2)) byte
  byte=$(od -An -tu1 -j "$middle" -N 1 "$1")
  printf "%b" "\\x$(printf '%02x' $(((byte + 1) % 256)))" | dd of="$1" bs=1 seek="$middle" conv=notrunc status=none
}

devices_with() { # NAME: the devices that have a rectangle of this name in the time line of page.html
  awk -v name="<title>$1: " '
    /^<g>$/ { getline; sub(/^<text[^>]*>/, ""); device = $1 }
    index($0, name) { print device }
  ' page.html | sort -u | xargs
}

case $scenario in
  learns) # The loss falls, and the exit code says when it does not.
    run falls
    has falls "identical bit by bit"
    run_code 1 rises --rate -0.01 --last-rate -0.01
    ((available >= 2)) || exit 0
    has rises "the loss did NOT fall"
    run_code 1 diverges --fault diverge@20
    has diverges "replicas DIFFER"
    run_code 2 unknown --no-such-option
    run_code 2 vocabulary --vocabulary 2
    # Without --warm-up, which the other runs have.
    "$program" --devices "$kind:1" --steps 8 --layers 1 --heads 1 --width 8 --context 8 --batch 1 --log-every 0 \
      --evaluate 0 >few.out 2>&1 || (($? == 1)) || fail "8 steps without --warm-up are refused"
    run_code 2 warm_up --warm-up 30
    run_code 0 help --help
    if LC_ALL=C grep -q '[^[:print:]]' help.out; then fail "the help has characters that cannot be printed"; fi
    run_code 2 alone --devices "$kind:1" --fault missing@5 --timeout 500ms
    has alone "needs two devices or more"
    run_code 2 alone_random --devices "$kind:1" --fault random@5 --timeout 500ms
    has alone_random "needs two devices or more"
    ;;
  repeatable) # Two runs of the same command are equal.
    run first "$@"
    run second "$@"
    same first second
    ;;
  captured) # Replays of a captured step are equal to the steps themselves.
    run eager "$@"
    run captured --captured "$@"
    same eager captured
    ;;
  layouts) # Devices, shards, stages and micro-batches only change the order of additions.
    needs 2
    close=2e-5
    [[ " $* " != *" bf16 "* ]] || close=0.02
    run one "$@" --devices "$kind:1" --batch 8
    for layout in "two --devices $kind:2" "four --devices $kind:4 --batch 2" "micro --batch 2 --micro-batches 2" \
      "sharded --sharded" "sharded4 --sharded --devices $kind:4 --batch 2"; do
      [[ $layout != *:4* ]] || ((available >= 4)) || continue
      # shellcheck disable=SC2086
      run $layout "$@"
      close_to one "${layout%% *}" "$close"
    done
    run untied "$@" --devices "$kind:1" --batch 8 --untied
    run stages "$@" --pipeline --untied --batch 4 --micro-batches 2
    close_to untied stages "$close"
    if ((available >= 3)); then
      run stages3 "$@" --pipeline --untied --batch 4 --micro-batches 2 --layers 3 --devices "$kind:3"
      run untied3 "$@" --devices "$kind:1" --batch 8 --untied --layers 3
      close_to untied3 stages3 "$close"
    fi
    run other "$@" --devices "$kind:1" --batch 8 --seed 2
    if (close_to one other "$close") >/dev/null; then
      fail "another seed gives the same losses: nothing was compared"
    fi
    ;;
  beside-host) # TOLERANCE ARGUMENT...: one GPU has the losses of one host device, within the tolerance.
    tolerance=$1
    shift
    run host --devices host:1
    run device "$@" --devices "$kind:1"
    close_to host device "$tolerance"
    run other "$@" --devices "$kind:1" --seed 2
    if (close_to host other "$tolerance") >/dev/null; then
      fail "another seed gives the same losses: nothing was compared"
    fi
    ;;
  gpu-fault) # COX ARGUMENT...: a kernel traps; the process ends with exit code 86, and `cox run` starts it again.
    cox=$1
    shift
    run whole "$@"
    run_code 86 lost "$@" --checkpoint lost_saved --every 5 --fault gpu@13
    cat >once.sh <<'END'
if [[ -e struck ]]; then exec "$@"; fi
touch struck
exec "$@" --fault gpu@13
END
    "$cox" run --restarts 3 --backoff 1ms -- bash once.sh "$program" "${small[@]}" "$@" --losses disturbed.losses \
      --checkpoint saved --every 5 --resume >disturbed.out 2>&1 || fail "disturbed ended with exit code $?"
    has disturbed "continues after step 10"
    same whole disturbed
    ;;
  resume) # 15 steps, then 15 in a new process, are equal to 30.
    run whole "$@"
    run begun "$@" --checkpoint saved --every 5 --stop-after 15
    has begun "checkpoints: 3 written, 0 failed"
    run resumed "$@" --checkpoint saved --every 5 --resume
    has resumed "continues after step 15"
    same whole resumed
    ;;
  checkpoints) # What is damaged is passed over, what belongs to another run is refused.
    run whole
    run begun --checkpoint saved --every 5 --stop-after 15
    [[ $(ls saved) == $'step-0000000010.checkpoint\nstep-0000000015.checkpoint' ]] ||
      fail "not two checkpoints: $(ls saved)"
    run_code 3 other --checkpoint saved --resume --seed 2
    has other "is of another run"
    run_code 3 buckets --checkpoint saved --resume --bucket-kib 512
    has buckets "is of another run"
    run_code 3 separate --checkpoint saved --resume --separate-gradients
    has separate "is of another run"
    run_code 3 unasked --checkpoint saved
    has unasked "continue with --resume"
    damage saved/step-0000000015.checkpoint
    run resumed --checkpoint saved --every 5 --resume
    has resumed "has a wrong checksum"
    has resumed "continues after step 10"
    same whole resumed
    run_code 1 unwritable --checkpoint /dev/null/saved --every 10
    has unwritable "checkpoints: 0 written, 3 failed"
    ;;
  killed) # The process is killed at some point after its first checkpoint.
    small+=(--batch 16) # long enough that 28 steps do not end before the kill
    run whole "$@"
    "$program" "${small[@]}" "$@" --checkpoint saved --every 2 >killed.out 2>&1 &
    process=$!
    until compgen -G 'saved/*.checkpoint' >/dev/null || ! kill -0 $process 2>/dev/null; do :; done
    kill -KILL $process 2>/dev/null || true
    code=0
    wait $process || code=$?
    [[ $code == 137 ]] || fail "killed ended with exit code $code before it was killed"
    run resumed "$@" --checkpoint saved --every 2 --resume
    if grep -q 'continues after step 0' resumed.out; then fail "no checkpoint was found"; fi
    same whole resumed
    ;;
  fault) # FAULT EXPECTED-TEXT ARGUMENT...: the engine gets the typed error, and continues after step 10.
    needs 2
    fault=$1
    expected=$2
    shift 2
    run whole "$@"
    run disturbed "$@" --checkpoint saved --every 5 --fault "$fault@13" --timeout 500ms
    has disturbed "$expected"
    has disturbed "continues after step 10"
    has disturbed "failures after which training continued: 1"
    # A device that the engine itself shuts down logs what its stream had left.
    if [[ $fault != shutdown ]] && grep -q '^coxswain:' disturbed.out; then
      fail "the library reports a failure that the engine did not take"
    fi
    same whole disturbed
    run_code 3 given_up "$@" --fault "$fault@13" --timeout 500ms --restarts 0
    has given_up "training failed"
    ;;
  random) # COX ARGUMENT...: random faults, also of the process, which `cox run` starts again.
    cox=$1
    shift
    run whole "$@"
    "$cox" run --restarts 1000 --backoff 1ms --backoff-max 1ms --on signal -- "$program" "${small[@]}" "$@" \
      --losses disturbed.losses --checkpoint saved --every 2 --resume --fault random@3 --timeout 300ms \
      --restarts 1000 >disturbed.out 2>&1 || fail "disturbed ended with exit code $?"
    grep -Eq 'restart|rank [0-9]+ failed' disturbed.out || fail "there was no fault in 30 steps"
    same whole disturbed
    ;;
  kept) # COX MODE ARGUMENT...: whatever ends the process, the losses go on from kept memory, bit by bit.
    cox=$1
    mode=$2
    shift 2
    run whole "$@"
    run begun "$@" --checkpoint saved --every 5 --stop-after 10
    kept=(--keep "$mode" --checkpoint saved --every 1000 --resume --timeout 20s "$@")
    # Without `cox run` the memory ends with the process.
    run alone "${kept[@]}"
    starts_are alone "unsupervised:10"
    same whole alone
    # In the backward pass: the contents are those of the last update.
    strikes 1 crash@13
    supervised crashed "$cox" "${kept[@]}"
    starts_are crashed "empty:10 whole:12"
    same whole crashed
    # In the update: with one copy the contents are torn, and belong to no step.
    strikes 1 update@13
    supervised updating "$cox" "${kept[@]}"
    if [[ $mode == double ]]; then
      starts_are updating "empty:10 whole:12"
    else
      starts_are updating "empty:10 torn:10"
    fi
    same whole updating
    if [[ $kind == cuda ]]; then
      strikes 1 gpu@13
      supervised trapped "$cox" "${kept[@]}"
      starts_are trapped "empty:10 whole:12"
      same whole trapped
    fi
    # At random points: while the program starts, too.
    mean=30 # milliseconds
    wanted=10
    if [[ $kind == cuda ]]; then # opening a GPU takes a second
      mean=2000
      wanted=3
    fi
    strikes 40 "kill@$mean"
    kills=0
    for round in {1..20}; do
      rm -rf saved
      supervised killed "$cox" --keep "$mode" --checkpoint saved --every 5 --timeout 20s "$@"
      same whole killed
      if [[ $mode == double && $(starts killed) == *whole*torn* ]]; then fail "two copies were torn after a commit"; fi
      kills=$((kills + $(grep -c 'was ended by signal 9' killed.out || true)))
      echo "round $round, $kills kills so far: $(starts killed)"
      ((kills < wanted)) || break
    done
    ((kills >= wanted)) || fail "only $kills runs were killed"
    ;;
  kept-failures) # COX ARGUMENT...: failures that the process survives.
    needs 2
    cox=$1
    shift
    run whole "$@"
    for fault in kernel memory thread shutdown missing; do
      timeout=20s
      [[ $fault != missing ]] || timeout=500ms
      strikes 1 "$fault@13"
      supervised "$fault" "$cox" --keep in-place --timeout "$timeout" "$@"
      has "$fault" "failures after which training continued: 1"
      starts_are "$fault" "empty whole:12"
      same whole "$fault"
    done
    ;;
  kept-start) # COX: when kept memory is not used.
    cox=$1
    run whole
    # Torn, and there is no checkpoint: from the beginning.
    strikes 1 update@13
    supervised torn "$cox" --keep
    starts_are torn "empty torn:0"
    same whole torn
    # Runs that end without an update: the contents may be the reason.
    run begun --checkpoint saved --every 5 --stop-after 10
    strikes 3 crash@13
    supervised suspect "$cox" --keep in-place --checkpoint saved --every 1000 --resume
    starts_are suspect "empty:10 whole:12 whole:12 suspect:10"
    same whole suspect
    # What the command line describes is not what is held.
    cat >strikes.sh <<'END'
if ((COX_RESTART == 0)); then exec "$@" --fault crash@13; fi
exec "$@" --seed 2
END
    if (supervised other "$cox" --keep in-place) >/dev/null; then fail "another run has taken the memory"; fi
    has other "is held with schema"
    # Without an option the program keeps nothing.
    strikes 1 crash@13
    supervised none "$cox"
    lacks none "kept memory"
    run_code 2 unknown --keep thrice
    run_code 2 without --fault update@3
    ((available >= 2)) || exit 0
    # Nothing but an update writes the parameters.
    strikes 1 diverge@13
    supervised refused "$cox" --keep in-place
    has refused "outside of an update"
    starts_are refused "empty whole:12"
    same whole refused
    ;;
  world) # COX ARGUMENT...: several processes compute what one process with their devices does, and continue its checkpoints.
    needs 2
    cox=$1
    shift
    strikes 0 none
    run whole "$@"
    world two 2 1 "$cox" "$@" --checkpoint saved --every 5
    has two "2 devices of 2 processes"
    has two "checkpoints: 6 written, 0 failed"
    same whole two
    # What processes have written, one process continues, and the other way round.
    world begun 2 1 "$cox" "$@" --checkpoint parts --every 5 --stop-after 15
    run one "$@" --checkpoint parts --every 5 --resume --stop-after 20
    has one "continues after step 15"
    world resumed 2 1 "$cox" "$@" --checkpoint parts --every 5 --resume
    has resumed "continues after step 20"
    same whole resumed
    ((available >= 4)) || exit 0
    case " $* " in *" --pipeline "*) set -- "$@" --layers 4 ;; esac
    run four "$@" --batch 2 --devices "$kind:4"
    world halves 2 2 "$cox" "$@" --batch 2
    same four halves
    world quarters 4 1 "$cox" "$@" --batch 2
    same four quarters
    ;;
  world-variables) # Started by hand, with COX_WORLD's variables.
    needs 2
    by_hand() { # NAME ARGUMENT...: both processes, each also with its words of `own`. Sets codes.
      local pids=() process
      local words=()
      codes=()
      for process in 1 0; do
        read -ra words <<<"${own[process]}"
        COX_WORLD=file:$scratch/store COX_WORLD_RUN=$1 COX_WORLD_PROCESSES=2 COX_WORLD_PROCESS=$process \
          "$program" "${small[@]}" --devices "$kind:1" --losses "$1.losses" "${@:2}" \
          "${words[@]}" >"$1$process.out" 2>&1 &
        pids[process]=$!
      done
      for process in 0 1; do
        codes[process]=0
        wait "${pids[process]}" || codes[process]=$?
      done
    }
    run whole
    own=("" "")
    by_hand hand
    mv hand0.out hand.out
    [[ ${codes[*]} == "0 0" ]] || fail "the processes ended with exit codes ${codes[*]}"
    [[ ! -s hand1.out ]] || fail "process 1 prints something"
    same whole hand
    # The replicas of all processes are compared, and all end with the code that says so.
    by_hand differ --fault diverge@20
    mv differ0.out differ.out
    [[ ${codes[*]} == "1 1" ]] || fail "the processes ended with exit codes ${codes[*]}"
    has differ "replicas DIFFER: rank 1 has"
    # What the processes are told must be the same.
    own=("--seed 1" "--seed 2")
    by_hand other
    cat other?.out >other.out
    [[ ${codes[*]} != *0* ]] || fail "another seed was taken"
    has other "process 1 has other options or another text than process 0"
    # A number of devices that does not fit is a wrong argument, also where it is known only when all have joined. Who
    # finds it leaves the world, which the other one may learn first.
    own=("" "")
    by_hand layers --pipeline --untied --layers 1
    cat layers?.out >layers.out
    [[ ${codes[*]} =~ ^("2 2"|"2 87"|"87 2")$ ]] || fail "the processes ended with exit codes ${codes[*]}"
    has layers "--pipeline needs a layer for each device"
    # A folder of checkpoints that is not the same one for all is found before the first step.
    own=("--checkpoint saved0" "--checkpoint saved1")
    by_hand begun --every 5 --stop-after 10
    own=("--checkpoint saved0 --resume" "--checkpoint saved1 --resume")
    by_hand folders
    cat folders?.out >folders.out
    [[ ${codes[*]} != *0* ]] || fail "two folders were taken"
    has folders "the folder must be the same one for all processes"
    ;;
  world-fails) # COX ARGUMENT...: a process of a world fails or is killed; the world goes on from the checkpoint.
    needs 2
    cox=$1
    shift
    run whole "$@"
    # A process that is killed may not have written the checkpoints of the last steps: so this one is complete before.
    strikes 0 none
    world begun 2 1 "$cox" "$@" --checkpoint saved --every 5 --stop-after 10
    cp -r saved saved_for_failure
    strikes 1 crash@13
    world crashed 2 1 "$cox" "$@" --checkpoint saved --every 5 --resume
    has crashed "process_gone"
    has crashed "ended with code 87"
    continues_are crashed "10 10"
    same whole crashed
    # A failure that the process survives ends it, too, since all must go back together.
    strikes 1 kernel@13
    world failed 2 1 "$cox" "$@" --checkpoint saved_for_failure --every 5 --resume
    has failed "LaunchError kernel_failed"
    continues_are failed "10 10"
    same whole failed
    rm -rf saved
    # At random points: while the world starts, too.
    strikes 40 kill@120
    grace=300ms
    kills=0
    for round in {1..20}; do
      rm -rf saved
      world killed 2 1 "$cox" "$@" --checkpoint saved --every 5 --resume
      same whole killed
      kills=$((kills + $(grep -c 'was ended by signal 9' killed.out || true)))
      echo "round $round, $kills kills so far: continued after $(sed -n 's/^continues after step //p' killed.out | xargs)"
      ((kills < 4)) || break
    done
    ((kills >= 4)) || fail "only $kills processes were killed"
    ;;
  kept-world) # COX MODE ARGUMENT...: the same from kept memory.
    needs 2
    cox=$1
    mode=$2
    shift 2
    strikes 0 none
    run whole "$@"
    world begun 2 1 "$cox" "$@" --checkpoint saved --every 5 --stop-after 10
    kept=(--keep "$mode" --checkpoint saved --every 1000 --resume --timeout 20s "$@")
    # In the backward pass of the last rank: all processes hold the last update.
    strikes 1 crash@13
    world crashed 2 1 "$cox" "${kept[@]}"
    starts_are crashed "empty:10 whole:12"
    same whole crashed
    # In its update, which the other process may have committed.
    strikes 1 update@13
    world updating 2 1 "$cox" "${kept[@]}"
    if [[ $mode == double ]]; then
      starts_are updating "empty:10 whole:12"
    else
      starts_are updating "empty:10 torn:10"
    fi
    same whole updating
    strikes 40 kill@120
    grace=300ms
    kills=0
    for round in {1..20}; do
      rm -rf saved
      world killed 2 1 "$cox" --keep "$mode" --checkpoint saved --every 5 --timeout 20s "$@"
      same whole killed
      if [[ $mode == double && $(starts killed) == *whole*torn* ]]; then fail "two copies were torn after a commit"; fi
      kills=$((kills + $(grep -c 'was ended by signal 9' killed.out || true)))
      echo "round $round, $kills kills so far: $(starts killed)"
      ((kills < 4)) || break
    done
    ((kills >= 4)) || fail "only $kills processes were killed"
    ;;
  report) # One page without references to other files.
    if [[ ! -r /usr/share/javascript/dygraphs/dygraph.min.js ]]; then
      run_code 2 missing --report page.html
      has missing "apt-get install libjs-dygraphs"
      echo "skipped: needs libjs-dygraphs"
      exit 0
    fi
    run drawn --report page.html
    for text in "new Dygraph(document.getElementById('loss')" "new Dygraph(document.getElementById('times')" \
      "Time line of step 5" "<title>matrix_product: " "<title>all_reduce: " "$kind:1 work" "$kind:1 collectives" \
      "<td>evaluation loss</td>" "<td>1 micro-batch of 4 samples</td>" "'communication not hidden'" "</html>"; do
      grep -qF -- "$text" page.html || fail "the page has no $text"
    done
    [[ $(grep -cE '^\[[0-9]+,[0-9.]+\],$' page.html) == 30 ]] || fail "the page has not 30 losses"
    if grep -qE '<(script|link|img)[^>]*(src|href)=' page.html; then fail "the page refers to another file"; fi
    if grep -qF "sourceMappingURL" page.html; then fail "the page refers to a file for debuggers"; fi
    # The kernels of every rank have names.
    if grep -qF "<title>launch: " page.html; then fail "there are kernels without names in the time line"; fi
    [[ $(devices_with matrix_product) == "$kind:0 $kind:1" ]] || fail "matrix products only on: $(devices_with matrix_product)"
    # What was not measured is left out.
    run captured --captured --evaluate 0 --report page.html
    for text in "communication not hidden" "evaluation loss"; do
      if grep -qF -- "$text" page.html; then fail "the page has the $text, which was not measured"; fi
    done
    [[ $(grep -cE '^\[[0-9]+,[0-9.]+\],$' page.html) == 60 ]] || fail "the page has not 30 losses and 30 step times"
    grep -qF "<title>replay: " page.html || fail "the page has no replay"
    # The last collectives of a step end after its loss is ready.
    run sharded --sharded --report page.html
    [[ $(devices_with all_gather) == "$kind:0 $kind:1" ]] || fail "all_gather only on: $(devices_with all_gather)"
    # A rank fails in the step that is traced: no other one waits for it.
    for fault in kernel thread shutdown missing; do
      for layout in "" "--captured" "--pipeline --untied"; do
        # shellcheck disable=SC2086
        run disturbed --report page.html --fault "$fault@5" --timeout 500ms $layout
        has disturbed "failures after which training continued: 1"
        grep -qF "Time line of step 5" page.html || fail "the page of $fault $layout has no time line"
      done
    done
    ;;
  threads) # The engine ends with an error if the thread of a rank cannot be started.
    # A user of its own has no other threads, and root has no limit of threads.
    if ! setpriv --reuid 65533 --clear-groups "$program" --help >help.out 2>&1; then
      echo "skipped: needs root, to run as a user without other threads"
      exit 0
    fi
    for threads in 1 2 3; do
      code=0
      setpriv --reuid 65533 --clear-groups prlimit --nproc=$threads "$program" "${small[@]}" >limited.out 2>&1 || code=$?
      [[ $code == 3 ]] || fail "with $threads threads it ended with exit code $code instead of 3"
      has limited "cox-train: Resource temporarily unavailable"
    done
    ;;
  *) fail "there is no case $scenario" ;;
esac
echo ok
