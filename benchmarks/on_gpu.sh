#!/bin/sh
# Check and measure the executor on a GPU.
#
#   sh benchmarks/on_gpu.sh check FOLDER     the tests that need a GPU, and doctor
#   sh benchmarks/on_gpu.sh profile FOLDER   a profile, models fitted to it, the preset beside it
#   sh benchmarks/on_gpu.sh live FOLDER      live runs beside simulations with that profile
#
# Each part writes what it prints to FOLDER/PART.txt. MODEL, SECONDS_OF_PROFILE, LIMITS, PRESET and
# LIVE change the values below; DEVICE=cpu MODEL=toy tries the script out without a GPU.

set -u

DEVICE=${DEVICE:-cuda}
MODEL=${MODEL:-llama-8b}
PYTHON=${PYTHON:-python3}
SECONDS_OF_PROFILE=${SECONDS_OF_PROFILE:-200}
LIMITS=${LIMITS:---max-num-seqs 128 --max-num-batched-tokens 4096 --max-context 8192 --repeats 3}
PRESET=${PRESET:-h200-sxm/llama-3.1-8b}
LIVE=${LIVE:---load 1.3 --repeats 2}

sched_env() {
  "$PYTHON" -m sched_env "$@"
}

check() {
  if [ "$DEVICE" = cuda ]; then nvidia-smi; marked=gpu; else marked="not gpu"; fi
  "$PYTHON" -m pytest -q -p no:cacheprovider -m "$marked" --durations 8 \
    tests/executor tests/evaluation/test_live.py tests/simulator/test_live.py
  code=$?
  sched_env doctor
  return $code
}

profile() {
  # shellcheck disable=SC2086
  sched_env profile run --device "$DEVICE" --model "$MODEL" --out "$folder/profile" \
    --max-seconds "$SECONDS_OF_PROFILE" $LIMITS || return
  for model in table two_regime affine; do
    sched_env profile fit "$folder/profile/steps.csv" --model "$model" --out "$folder/fit_$model"
  done
  sched_env profile check "$folder/profile/steps.csv" --cost "$PRESET"
}

live() {
  # shellcheck disable=SC2086
  "$PYTHON" benchmarks/sim_to_real.py --device "$DEVICE" --model "$MODEL" \
    --profile "$folder/profile" --out "$folder/live" $LIVE
}

part=${1:-} folder=${2:-}
case "$part" in
  check | profile | live) ;;
  *) part= ;;
esac
if [ -z "$part" ] || [ -z "$folder" ]; then
  sed -n '4,6s/^#   //p' "$0" >&2
  exit 2
fi
mkdir -p "$folder" || exit
$part >"$folder/$part.txt" 2>&1
code=$?
cat "$folder/$part.txt"
exit $code
