"""What `weir` can be told to do: a file a command, and what they share."""
