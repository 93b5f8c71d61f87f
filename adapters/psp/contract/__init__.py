"""The contract suite: what every adapter of a PSP promises, asked of the adapters that are named.

    pytest --pyargs adapters.psp.contract --psp acme.under_test:AcmeUnderTest

It needs pytest, which the service itself does not. `under_test` says what it needs of a PSP.
"""
