"""The front desk's page: make a link to the page, show a session there, and cancel the session."""
