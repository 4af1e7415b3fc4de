"""The processes of one program: what they share, and how they talk."""
