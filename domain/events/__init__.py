"""Events: who is told what, and the sending with its retries."""
