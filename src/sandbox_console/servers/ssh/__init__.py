"""``proxy`` and ``ssh-config``: OpenSSH's programs reach a sandbox through the console, without a daemon in it."""
