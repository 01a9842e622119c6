"""What ``config.pbtxt`` says: read (text), completed and checked (checks, backend), and seen by those who run it (spec)."""
