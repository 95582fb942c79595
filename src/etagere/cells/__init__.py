"""The account map as the nodes of several cells use it.

Imported only by nodes and commands with the setting `account_map`.
"""
