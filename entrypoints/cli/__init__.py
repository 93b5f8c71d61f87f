"""The `cardonfile` command line: `main` has the group, and the other modules have the commands.

Slow imports are inside the functions that use them, so that `--help` is quick.
"""
