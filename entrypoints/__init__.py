"""Where the service is put together and started: settings, container, server, command line."""
