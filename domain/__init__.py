"""The rules about cards on file, independent of HTTP, SQL and any particular PSP.

This package imports only the standard library. Each subpackage is a capability. Its modules
named by a noun define the entities, their rules and the ports. Its modules named by a verb
(`add_card`, `settle_session`, …) are the use cases. The modules beside the subpackages are shared
by all capabilities. Among them, `storage` combines the repositories of all capabilities.
"""
