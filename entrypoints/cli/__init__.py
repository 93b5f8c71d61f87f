"""The `cardonfile` command line: `main` has the group, and other modules its commands.

Slow imports stand in the functions that use them, so that `--help` is quick.
"""
