"""`python -m recmill` and the `recmill` command."""

import os

from recmill.errors import INTERRUPTED


def main() -> None:
    """Run the command line; Ctrl-C while its modules are still being loaded ends it as later on."""
    try:
        from recmill.cli.main import run

        run()
    except KeyboardInterrupt:
        os.write(2, b"recmill: interrupted\n")
        os._exit(INTERRUPTED)  # half-loaded libraries are not asked to tidy up


if __name__ == "__main__":
    main()
