"""`tandemlog`, or `python -m node`."""

from .cli.app import main

if __name__ == "__main__":
    main()
