"""The contract suite: tests of the promises of every PSP adapter, and stand-ins that play a PSP.

    pytest --pyargs adapters.psp_suite --psp acme.under_test:AcmeUnderTest

The suite needs pytest, which the service itself does not. `under_test` describes what to write.
"""
