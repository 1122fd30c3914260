"""Actions on one sandbox, from the question to the outcome."""
