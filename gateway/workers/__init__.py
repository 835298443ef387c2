"""Several processes that serve as one: who starts them, and the numbers that they share."""
