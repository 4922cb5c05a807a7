"""Click models as a job: data, steps, evaluation, plan."""
