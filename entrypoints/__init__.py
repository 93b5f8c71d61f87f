"""The service's start: settings, container, server and command line."""
