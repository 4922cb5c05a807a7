"""`python -m recmill` and the `recmill` command."""

import sys

from recmill.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
