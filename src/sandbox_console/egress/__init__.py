"""The gateway that will decide connections by name; standard library only."""
