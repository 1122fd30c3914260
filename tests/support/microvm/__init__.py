"""A machine in which microVMs boot, where this one cannot: QEMU emulates a processor with SVM, in software.

Debian's kernel, unpacked from its package and never installed, gets a working /dev/kvm there. This host's root is
its root, read-only below a scratch disk, so that the virtual environment and the repository are there as they are.
No network leaves it. ``python -m tests.support.microvm`` says how it is used.
"""
