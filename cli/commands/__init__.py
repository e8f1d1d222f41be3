"""The commands of `tandemlog`, one a file."""
