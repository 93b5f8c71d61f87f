"""One package or module for each technology.

They do not import each other, apart from the shared ones: `psp`, `sql`, `outbound_http`,
`thread_safe_types`, `traces`, `catalogs` and `guest_pages`. The example `psp_example` also imports
`psp_suite`.
"""
