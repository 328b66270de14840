#!/usr/bin/env bash
# All that a machine with a GPU can tell, in ten minutes and one file, build/gpu/REPORT.md.
#
#   benchmarks/gpu.sh             on the GPU
#   benchmarks/gpu.sh --cpu       the same steps on the CPU, as a rehearsal
#   benchmarks/gpu.sh STEP ...    these steps alone, added to the file: machine tests device table
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python} device=gpu visible=${CUDA_VISIBLE_DEVICES:-0} slack=1 rounds=2
if [ "${1:-}" = --cpu ]; then device=cpu visible=-1 slack=8 rounds=1; shift; fi
steps=${*:-machine tests device table}
report=build/gpu/REPORT.md failed=0
mkdir -p build/gpu
[ $# = 0 ] && : > "$report"

# step NAME SECONDS COMMAND...: runs a command and adds the end of what it prints to the report.
step() {
  local name=$1 limit=$2 began=$SECONDS code
  shift 2
  echo "$name ..." >&2
  timeout --signal=INT --kill-after=5 "$((limit * slack))" "$@" > build/gpu/step.log 2>&1
  code=$?
  [ $code = 0 ] || failed=1
  printf '## %s (%s)\n\n```\n%s\n```\n\nexit code %s, %s s\n\n' "$name" "$device" "$(tail -n 60 build/gpu/step.log)" \
    "$code" "$((SECONDS - began))" >> "$report"
}

for each in $steps; do
  case $each in
    machine)
      step machine 20 bash -c 'grep -m 1 "model name" /proc/cpuinfo; nvidia-smi 2>&1; git log -1 --format=%h
        "$0" -m pip list 2>/dev/null | grep -iE "^(tensorflow|keras|keras-hub|torch|transformers|timm|numpy) "' "$python" ;;
    tests)  # a layer, the functions that XLA compiles, a model's contract, the trainer
      step tests 150 env CUDA_VISIBLE_DEVICES="$visible" "$python" -m pytest -q -m "not slow" tests/layers/test_fused.py \
        tests/layers/test_attention_values.py tests/layers/test_blockwise.py tests/models/test_bert.py ;;
    device)  # exactness on one and two, 16 bits, fused functions, memory by length
      step device 150 "$python" -m benchmarks.gpu --device "$device" ;;
    table)
      step table 270 "$python" -m benchmarks.all --only bert translate --limit "$((2 * slack))" --rounds "$rounds" \
        --again --folder build/gpu/table --device "$device" ;;
    *) echo "no such step: $each" >&2; exit 2 ;;
  esac
done
echo "$report"
exit $failed
