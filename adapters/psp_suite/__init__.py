"""The contract suite: tests that every PSP adapter must pass, and a stand-in server to play a PSP.

    pytest --pyargs adapters.psp_suite --psp acme.under_test:AcmeUnderTest

The suite needs pytest, which is not installed with the service. The module `under_test` describes
the class to write.
"""
