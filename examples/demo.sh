#!/bin/sh
# The main job from end to end: train a small scheduler, compare it with the heuristics on later traffic
# that it never saw, export it, and run the exported file. "make demo" sets everything up and runs this.
set -eu

command="${SCHED_ENV_COMMAND:-sched-env}"
run="${RUNS:-runs}/demo/$(date -u +%Y%m%dT%H%M%SZ)"

step() {
    printf '\n$ sched-env'
    printf ' %s' "$@"
    printf '\n'
    "$command" "$@"
}

step train experiment/demo --run-dir "$run"
step evaluate --policies "fcfs,fixed_priority,aging,deadline,sjf,weighted_sjf,learned=$run,tuned=pretrained/tuned_linear,pretrained=pretrained/azure2023" \
    --trace azure_conv --load 1.0,1.3 --seeds 3 --split test --out "$run/evaluation" >/dev/null
step export "$run" --out "$run/exported"
step simulate --policy "$run/exported" --trace azure_conv --load 1.0 --split test \
    --out "$run/simulation" >"$run/simulation.txt"
step report "$run"

printf '\nThe exported policy:  %s\n' "$run/exported"
printf 'Its requests:         %s\n' "$run/simulation/requests.csv"
case "$command" in
    */*) tensorboard="$(dirname "$command")/tensorboard" ;;
    *) tensorboard=tensorboard ;;
esac
printf 'See how it learned:   %s --logdir %s\n' "$tensorboard" "$run"
