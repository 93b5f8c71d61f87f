"""The server, the worker and the command line, with the settings and the container they share."""
