"""Several processes that serve as one: what starts them, and starts another when one dies."""
