"""What starts the service: settings, container, server and command line."""
