#!/bin/bash
#SBATCH --job-name=small
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --partition=gpu
#SBATCH --time=2-12:00:00
#SBATCH --cpus-per-task=8
#SBATCH --output=small-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@90
#SBATCH --account=ads

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((29400 + SLURM_JOB_ID % 10000))
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}  # srun does not take it from sbatch by itself
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$SRUN_CPUS_PER_TASK}
export NUMBA_NUM_THREADS=${NUMBA_NUM_THREADS:-$OMP_NUM_THREADS}
export NCCL_DEBUG='WARN now'

# told to stop, the processes save and end; when Slurm takes the hosts away it tells them itself
trap 'requeue=yes; kill -USR1 $step' USR1
trap 'stop=yes' TERM

requeue= stop= restarts_left=3
while true; do
    srun --kill-on-bad-exit=1 /opt/recmill/bin/python -m recmill train small --data '/data/click logs' --run 'runs/$day' &
    step=$!
    wait $step; status=$?
    while kill -0 $step 2>/dev/null; do wait $step; status=$?; done  # a signal ends only the waiting
    [ $status -eq 0 ] && exit 0
    scontrol show job $SLURM_JOB_ID | grep -q ' PreemptTime=[0-9]' && requeue=yes
    [ "$requeue" ] && exec scontrol requeue $SLURM_JOB_ID
    [ "$stop" ] || [ $restarts_left -eq 0 ] && exit $status
    restarts_left=$((restarts_left - 1))
    echo "the step ended with status $status; starting it again, $restarts_left more times are left"
done
