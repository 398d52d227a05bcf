#!/usr/bin/env bash
# Everything that needs a GPU, on a machine with one and without internet, in eight minutes.
#
#     scripts/device_check.sh [FOLDER]             # results go there; default: runs/device_check
#     scripts/device_check.sh --dry-run [FOLDER]   # the same steps without a GPU, at tiny sizes
#
# 1. The tests of the Triton kernels, compiled for the GPU; in a dry run some of them, in Triton's
#    interpreter.
# 2. The tests marked `gpu`: ops against float64, flash_attention_2 against sdpa. What is skipped is
#    printed by name.
# 3. scripts/benchmark.py against SDPA, and against flash-attn and flash-linear-attention where they
#    are installed.
# 4. FOLDER/device_check.json and a table of all.
#
# Exit code 0: every step ended well. A step that fails or runs out of time does not stop the others.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=false

dry=
if [ "${1:-}" = --dry-run ]; then dry=1; shift; fi
case "${1:-}" in -*) echo "error: unknown option $1; there is --dry-run" >&2; exit 2;; esac
out="${1:-runs/device_check}"
mkdir -p "$out" || exit 2
python="${PYTHON:-python3}"
if [ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ]; then python=.venv/bin/python; fi

rm -f "$out"/*.json "$out"/*.xml "$out"/*.tsv "$out"/*.log
# name, seconds it may take, command: one line a step in steps.tsv, one log each
step() {
    local name="$1" limit="$2" start code
    shift 2
    echo "== $name: $*"
    start=$SECONDS
    timeout --kill-after=5 "$limit" "$@" 2>&1 | tee "$out/$name.log"
    code=${PIPESTATUS[0]}
    printf '%s\t%s\t%s\t%s\n' "$name" "$code" "$((SECONDS - start))" "$limit" >> "$out/steps.tsv"
}

if [ -n "$dry" ]; then
    device=(--device cpu --batch 1 --heads 2 --head_dim 16 --rounds 1 --lengths 128)
    # The interpreter takes minutes for all.
    kernels=(env TRITON_INTERPRET=1 "$python" -m pytest -k "b04 or features or one_token")
else
    device=(--device cuda --batch 8 --heads 16 --rounds 7 --lengths 1024,4096,8192)
    kernels=("$python" -m pytest)
    # Most of the time goes into compiling.
    if "$python" -c 'import xdist' 2>/dev/null; then kernels+=(-n 8); fi
fi

step kernels 170 "${kernels[@]}" -m kernels -rs -q --junitxml "$out/kernels.xml" tests/kernels
# Only the files that have such tests: the others import what this machine need not have.
mapfile -t files < <(grep -rl --include='*.py' 'mark\.gpu' tests)
step tests 100 "$python" -m pytest -m gpu -rs -q --junitxml "$out/tests.xml" "${files[@]}"
step benchmark 200 "$python" scripts/benchmark.py --suite op,decode,memory,compare "${device[@]}" \
    --tokens 1000 --json "$out/benchmark.json" --markdown "$out/benchmark.md" \
    --plot "$out/benchmark.png"
"$python" scripts/device_report.py "$out" ${dry:+--dry-run}
