"""Everything recmill raises on purpose.

RecmillError                    caught by the command line, shown in one or two lines
├── UserError                   exit status 2: something to be changed in the command, the settings or the input
│   ├── ConfigError             a setting: unknown, of the wrong type, out of range, or at odds with another
│   ├── DataError               an input file: missing, malformed, of the wrong layout
│   │   └── BadRowError         one line of text or JSON, or row of Parquet, with its number, column and offending text
│   ├── RunError                a run directory: already there, incomplete, or of another shape
│   └── MissingExtra            a part of recmill that needs packages which are not installed
└── FailureError                exit status 1: the work itself failed
    ├── NonFiniteLoss           training diverged; says where, and which state is still good
    ├── Interrupted             the run was asked to end, and has saved its state; 128 + the signal's number
    ├── PeerFailed              another process of the run has failed, and says why; this one ends with its status
    └── PeerLost                another process of the run did not come, has died, or does not answer
"""

INTERRUPTED = 130  # the exit status after Ctrl-C, as of shells
ERROR_FILE = "RECMILL_ERROR_FILE"  # where a command writes the error that ended it, for the process that started it


class RecmillError(Exception):
    """The root of the tree."""

    exit_status = 1


class UserError(RecmillError):
    """Something the user can change."""

    exit_status = 2


class ConfigError(UserError, ValueError):
    """A setting is unknown, of the wrong type, out of range, or at odds with another."""


class DataError(UserError):
    """An input file is missing, malformed or of the wrong layout."""


class BadRowError(DataError):
    """One line of text or JSON, or row of Parquet, cannot be read."""


class RunError(UserError):
    """A run directory is already there, incomplete, or of another shape."""


class MissingExtra(UserError):
    """A part of recmill needs packages which are not installed."""


class FailureError(RecmillError):
    """The work itself failed."""


class NonFiniteLoss(FailureError):
    """Training diverged."""


class Interrupted(FailureError):
    """The run was asked to end, and has saved its state."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + signal_number


class PeerFailed(FailureError):
    """Another process of the run has failed, and says why."""

    def __init__(self, exit_status: int) -> None:
        super().__init__("another process of the run has failed")
        self.exit_status = exit_status


class PeerLost(FailureError):
    """Another process of the run did not come, has died, or does not answer."""
