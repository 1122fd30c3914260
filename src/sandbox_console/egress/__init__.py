"""The gateway that decides connections by name, its rules and its records; standard library only.

It ships as a zipapp of this folder, ``model/hosts.py`` and ``model/egress.py`` (``bundle``), for Python 3.11 and later.
"""
