"""The command line. Data goes to stdout, messages go to stderr. Nothing large is imported until a verb runs."""
