"""One package or module for each technology.

None of them imports another, except those that several share: `psp`, `sql`, `outbound_http`,
`first_reads`, `catalogs` and `guest_pages`.
"""
