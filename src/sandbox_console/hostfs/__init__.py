"""Access to files of this machine that a guest may have changed, by descriptor and one path component at a time.

``places`` knows which folders guests can change, ``walk`` opens paths through them, ``mounts`` reports what a folder is
whatever it is mounted as, ``packing`` and ``unpacking`` carry tars, ``files`` reads and writes single files.
"""
