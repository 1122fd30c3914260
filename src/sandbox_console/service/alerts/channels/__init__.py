"""How a message is delivered: one file for each kind of channel. Each raises NotDelivered, with the reason."""
