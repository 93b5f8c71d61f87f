"""The front desk's page: make a link to it, show the state of a session there, and cancel it."""
