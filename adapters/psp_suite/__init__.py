"""The contract suite: tests of what every PSP adapter promises, and what plays a PSP in them.

    pytest --pyargs adapters.psp_suite --psp acme.under_test:AcmeUnderTest

It needs pytest, which the service itself does not. `under_test` describes what to write.
"""
