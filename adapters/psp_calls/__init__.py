"""The layers around every call to a PSP: bulkhead, circuit breakers, log of outages, checks."""
