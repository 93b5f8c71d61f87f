"""Around every call to a PSP: bulkhead, circuit breakers, log of outages, check of the merchant."""
