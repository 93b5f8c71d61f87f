"""The rules about cards on file, without any word of HTTP, SQL or a particular PSP.

This package imports only the standard library. Each subpackage is a capability: its nouns hold the
rules and the ports, and its verbs (`add_card`, `settle_session`, …) are the use cases. The modules
beside the subpackages are the shared vocabulary, and `storage` joins the repositories of all
capabilities.
"""
