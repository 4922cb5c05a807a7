"""What a process takes before it has a model."""

FLOAT_BYTES = 4
# Python with torch, numba and its compiled kernels, and blocks of text read ahead: what the smallest run takes.
BASE_BYTES = 580 << 20
