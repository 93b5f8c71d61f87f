"""The contract suite: tests of what every PSP adapter promises.

    pytest --pyargs adapters.psp.contract --psp acme.under_test:AcmeUnderTest

It needs pytest, which the service itself does not. `under_test` describes what to write.
"""
