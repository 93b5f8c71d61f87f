"""A cluster of PostgreSQL under Patroni with the service in front of it, whose parts are killed."""
