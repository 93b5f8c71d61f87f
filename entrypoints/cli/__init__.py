"""The `cardonfile` command line. `main` has the group; the other modules have its commands.

Slow imports are inside the functions that need them, so that `--help` is quick.
"""
