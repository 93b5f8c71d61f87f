"""The adapters, with one package or module for each technology.

Adapters do not import each other. They may import the shared modules `psp`, `sql`, `outbound_http`,
`thread_safe_types`, `traces`, `catalogs` and `guest_pages`. The example `psp_example` also imports
`psp_suite`.
"""
