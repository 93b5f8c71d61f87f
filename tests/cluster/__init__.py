"""Test the service with a PostgreSQL cluster under Patroni, while parts of the cluster are killed."""
