"""What cardonfile knows about cards on file, with no word of HTTP, SQL or any one PSP.

Only the standard library is imported here. The use cases are the modules named for a verb
(`add_card`, `settle_session`, …); the nouns hold the rules; `ports` says what the outside promises.
"""
