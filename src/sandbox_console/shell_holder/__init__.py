"""The process that holds a kept shell: one per shell, which outlives the console that opened it.

It is small: it has its user's one shell, the state of its terminal (libghostty, through ctypes), and the sockets of its
viewers. It imports neither a backend's SDK nor the service: the console that opens the shell passes it the open files
of the shell, and the guard that it starts (``crash_guard``) runs the command that records its end.
"""
