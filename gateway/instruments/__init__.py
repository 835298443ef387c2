"""What is counted and measured, what the numbers are kept in, and how they are written out."""
