"""The `cardonfile` command line. `main` defines the group, and the other modules define its commands.

Slow imports are inside the functions that need them, so that `--help` is quick.
"""
