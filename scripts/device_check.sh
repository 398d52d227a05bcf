#!/usr/bin/env bash
set -uo pipefail
# Paths are the caller's until the folder changes; "." below is the repository.
caller=$PWD
cd "$(dirname "$0")/.." || exit 2

usage() {
    cat <<'END'
usage: scripts/device_check.sh [--dry-run] [FOLDER]

Everything that needs a GPU, on a machine with one and without internet, in eight minutes:

1. kernels: the tests of the Triton kernels, compiled for the GPU; in a dry run some of them, in
   Triton's interpreter.
2. tests: those marked `gpu`, ops against float64 and flash_attention_2 against sdpa. What is
   skipped is printed by name.
3. benchmark: scripts/benchmark.py against SDPA, and against flash-attn and flash-linear-attention
   where they are installed.

  FOLDER     where the results go, from the current folder; default: runs/device_check of the
             repository. It gets device_check.json (all of it), benchmark.json, .md and .png,
             kernels.xml, tests.xml, steps.tsv and a log a step. Those of an earlier check are
             replaced, other files are left alone.
  --dry-run  the same steps without a GPU, at tiny sizes, in about two minutes
  --help     this

PYTHON is the interpreter to use; default: .venv/bin/python of the repository, else python3.

A step that fails or runs out of time does not stop the others. Exit code 0: every step ended well;
1: one did not; 2: a mistake in the call.
END
}

refuse() { echo "error: $1" >&2; exit 2; }
from_caller() { case "$1" in /*) echo "$1";; *) echo "$caller/$1";; esac; }

dry= out=
for argument in "$@"; do
    case "$argument" in
        --dry-run) dry=1;;
        -h | --help) usage; exit 0;;
        -*) refuse "unknown option $argument; there are --dry-run and --help";;
        "") refuse "FOLDER is empty; give the name of a folder";;
        *) [ -z "$out" ] || refuse "one FOLDER, not both $out and $argument"; out=$argument;;
    esac
done
if [ -n "$out" ]; then out=$(from_caller "$out"); else out=$PWD/runs/device_check; fi
mkdir -p "$out" || exit 2
# A name without a slash is looked for in PATH.
python=${PYTHON:-}
case "$python" in
    "") python=python3; if [ -x .venv/bin/python ]; then python=$PWD/.venv/bin/python; fi;;
    */*) python=$(from_caller "$python");;
esac
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=false

own=(device_check.json benchmark.{json,md,png,log} kernels.{xml,log} tests.{xml,log})
# steps.tsv is the first thing a check writes: without it these names are somebody else's files.
if [ ! -e "$out/steps.tsv" ]; then
    for name in "${own[@]}"; do
        [ ! -e "$out/$name" ] || refuse "$out/$name is there, and no steps.tsv of an earlier check \
beside it; move it away, or give another folder"
    done
fi
(cd "$out" && rm -f -- "${own[@]}") && : > "$out/steps.tsv" || exit 2

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
