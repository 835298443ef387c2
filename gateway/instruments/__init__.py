"""What numbers are kept in, and how they are written out."""
