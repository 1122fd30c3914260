"""Values as text, without Textual."""
