"""The gateway, which decides about connections by host name, with its rules and records.

It uses the standard library only.

``bundle`` packs this folder, ``model/hosts.py`` and ``model/egress.py`` into a zipapp for Python 3.11 and later.
"""
