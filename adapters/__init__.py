"""One package or module for each technology.

None of them imports another, except those that several share: `psp`, `sql`, `outbound_http`,
`thread_safe_types`, `catalogs` and `guest_pages`; the example `psp_example` also imports `psp_suite`.
"""
