"""`python -m tandemlog`: the program, as the command `tandemlog`."""

from tandemlog_server.cli.app import main

if __name__ == "__main__":
    main()
