#!/usr/bin/env bash
#SBATCH --job-name=hf-linear-attn
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
# Several machines with eight GPUs each, under Slurm; the folder has to be the same on all of them:
#
#   sbatch --nodes=4 recipes/slurm/multi-node.sh recipes/clm.py --config recipes/configs/clm/….yaml
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
export MACHINES="$SLURM_JOB_NUM_NODES"
export PROCESSES=$((SLURM_JOB_NUM_NODES * gpus))
export MAIN_ADDRESS
MAIN_ADDRESS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
# Of the job, so that two jobs on one machine do not meet.
export MAIN_PORT=$((20000 + SLURM_JOB_ID % 20000))
export CONFIG_FILE="recipes/accelerate/$engine.yaml"

stopped=
trap 'stopped=yes; kill -TERM "$step"' TERM
# One launcher a machine; its number is known on the machine only.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c '
  exec accelerate launch --config_file "$CONFIG_FILE" --num_machines "$MACHINES" \
    --num_processes "$PROCESSES" --machine_rank "$SLURM_NODEID" \
    --main_process_ip "$MAIN_ADDRESS" --main_process_port "$MAIN_PORT" --rdzv_backend static "$@"
  ' launcher "$@" &
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
