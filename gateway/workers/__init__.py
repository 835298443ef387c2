"""Several processes that serve as one: who starts them, and who starts them again."""
