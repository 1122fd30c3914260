"""What an incident is made of: the cause of an end, and what happened around it. Reads only."""
