"""What cardonfile knows about cards on file, with no word of HTTP, SQL or any one PSP.

Only the standard library is imported here. Each package is a capability: its nouns hold the rules
and the ports, its verbs (`add_card`, `settle_session`, …) are the use cases. The modules beside the
packages are the vocabulary, and `storage` joins the repositories of all capabilities.
"""
