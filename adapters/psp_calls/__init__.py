"""The layers around every call to a PSP: bulkhead, circuit breakers, outage log and checks."""
