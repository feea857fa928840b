#!/usr/bin/env bash
# One process of a run under srun: Slurm's numbers under the names that fulcrum knows, then the command itself.
set -eu
export RANK="$SLURM_PROCID" LOCAL_RANK="$SLURM_LOCALID" WORLD_SIZE="$SLURM_NTASKS"
exec "$@"
