#!/usr/bin/env bash
#SBATCH --job-name=hf-linear-attn
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
# One machine with eight GPUs, under Slurm:
#
#   sbatch recipes/slurm/single-node.sh recipes/mlm.py --config recipes/configs/mlm/cosformer-base.yaml
#
# The same command again goes on where the run stopped, so the job may be taken away at any time: on
# SIGTERM (preemption, or two minutes before the time limit) the step is finished, a checkpoint is
# saved, and the job queues itself again.
#
#   ENGINE   file of recipes/accelerate without .yaml (ddp)
#   GPUS     GPUs of a machine (8)
set -euo pipefail

engine="${ENGINE:-ddp}"
gpus="${GPUS:-8}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

stopped=
trap 'stopped=yes; kill -TERM "$step"' TERM
srun --kill-on-bad-exit=1 accelerate launch --config_file "recipes/accelerate/$engine.yaml" \
  --num_processes "$gpus" --main_process_port 0 "$@" &
step=$!

# A signal ends `wait`, not the step.
code=0
while kill -0 "$step" 2>/dev/null; do
  code=0
  wait "$step" || code=$?
done
if [[ -n "$stopped" && "$code" -ne 0 ]]; then
  exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
