"""A limit on the address space (`ulimit -v`) under which libraries would not load: said before they are loaded.

Below it they end the process in words of their own (OpenMP, OpenBLAS), by a signal, or wait for a thread for ever.
"""

import resource

from recmill.errors import ConfigError

GIB = 1 << 30
# Measured on two cores: prepare 1.2 GiB, a run of a few rows 2.3; each further core takes some tens of MiB.
_LEAST_GIB = {
    **dict.fromkeys(("demo", "train", "evaluate", "calibrate", "predict", "recommend", "bench"), 2.25),
    **dict.fromkeys(("prepare", "audit", "synth", "sort", "split", "schema", "checkpoint", "plan"), 1.25),
}


def refuse_little_address_space(verb: str) -> None:
    """Complain about a limit of this process that is too low for a verb."""
    limit, least = resource.getrlimit(resource.RLIMIT_AS)[0], _LEAST_GIB.get(verb, 0.0)
    if limit != resource.RLIM_INFINITY and limit < least * GIB:
        raise ConfigError(
            f"the address space of this process is limited to {limit / GIB:.2f} GiB (ulimit -v), and `recmill {verb}` "
            f"needs {least} GiB and more, most of which it only reserves; raise the limit, e.g. with "
            "`ulimit -v unlimited`"
        )
