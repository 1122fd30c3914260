"""The command line: stdout is data, talk goes to stderr. Nothing heavy is imported until a verb runs."""
