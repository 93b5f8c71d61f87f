"""Kills the parts of a PostgreSQL cluster under Patroni with the service in front of it."""
