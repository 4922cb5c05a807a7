"""`python -m recmill` and the `recmill` command."""

from recmill.cli.main import run as main

__all__ = ["main"]

if __name__ == "__main__":
    main()
