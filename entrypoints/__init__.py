"""The programs: the settings, the container, the server, the worker and the command line."""
